# SPDX-License-Identifier: Apache-2.0
"""Starts harpctl from the folder that harp_setup.sh made, with nothing of the host's own Python packages."""

import sys
from pathlib import Path

HOME = Path(__file__).absolute().parent
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"

sys.path[:0] = [str(HOME / "app"), str(HOME / "ext" / TAG)]
sys.argv[0] = "harpctl"

from harpctl.cli import main  # noqa: E402

main()
