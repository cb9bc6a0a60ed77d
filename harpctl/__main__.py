"""`python -m harpctl` is the same program as `harpctl`."""

from harpctl.cli import main

main()
