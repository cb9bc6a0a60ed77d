# SPDX-License-Identifier: Apache-2.0
"""The programs that measure nothing, which tests of harpctl have, too."""

from __future__ import annotations

from tests.harpctl.conftest import fake_perf, fake_plugin

__all__ = ["fake_perf", "fake_plugin"]
