# SPDX-License-Identifier: Apache-2.0
"""`python -m tiacc_training.torch.distributed.launch`: lightcc.launch, with --local-rank for the script."""

from __future__ import annotations

from lightcc.launch import main

if __name__ == "__main__":
    main(passes_local_rank=True)
