# SPDX-License-Identifier: Apache-2.0
"""The whole command line, made once for all tests."""

from __future__ import annotations

from harpctl.cli import make_app

app = make_app()
