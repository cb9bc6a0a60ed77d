# SPDX-License-Identifier: Apache-2.0
"""`python -m harpctl` is the same program as `harpctl`."""

from harpctl.cli import main

main()
