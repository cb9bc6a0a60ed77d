# SPDX-License-Identifier: Apache-2.0
"""Makes HARP NCCL's plugin when torch is imported, which calls this (an entry point of torch.backends).

HARP_DISABLE=1 turns it off, as it turns off HARP; so does TORCH_DEVICE_BACKEND_AUTOLOAD=0, which is torch's.
"""

from __future__ import annotations

import os


def use_harp() -> None:
    """Name the plugin to NCCL, unless another one is named or it cannot be loaded. Never raises."""
    if os.environ.get("HARP_DISABLE") == "1" or os.environ.get("NCCL_NET_PLUGIN"):
        return
    try:
        from harp_net import library

        os.environ["NCCL_NET_PLUGIN"] = str(library())
    except Exception:
        pass  # NCCL then uses its own network
