# SPDX-License-Identifier: Apache-2.0
"""TI-ACC's package for PyTorch: init_tiacc_training() is lightcc.init()."""

from __future__ import annotations

from lightcc import init as init_tiacc_training

__all__ = ["init_tiacc_training"]
