# SPDX-License-Identifier: Apache-2.0
"""`--yes` has one meaning in all commands: those have it that may ask, and it is what keeps them from it."""

from __future__ import annotations

import pytest

from harpctl.cli import COMMANDS, load_command

OPTIONS = {
    name: {word: option for option in load_command(name).params for word in option.opts}
    for names in COMMANDS.values()
    for name in names
}
ASKING = sorted(name for name, options in OPTIONS.items() if "--hosts" in options and "--dry-run" in options)


def test_the_commands_that_ask() -> None:
    """A plan is asked about: of this host by setup, with --hosts by all that have one."""
    assert ASKING == ["disable", "enable", "install", "rollback", "setup"]
    assert sorted(name for name, options in OPTIONS.items() if "--yes" in options) == ASKING


@pytest.mark.parametrize("name", ASKING)
def test_its_help(name: str) -> None:
    option = OPTIONS[name]["--yes"]
    assert (option.help, option.opts) == ("Ask nothing.", ["--yes", "-y"])
