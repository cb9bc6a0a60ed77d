# SPDX-License-Identifier: Apache-2.0
"""TI-ACC's names for lightcc: init_tiacc_training(), and tiacc_training.torch.distributed.launch."""

from __future__ import annotations

from lightcc import init as init_tiacc_training

__all__ = ["init_tiacc_training"]
