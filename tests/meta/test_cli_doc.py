# SPDX-License-Identifier: Apache-2.0
"""docs/reference/cli.md contains what the commands' help contains."""

from __future__ import annotations

from harpctl.cli import COMMANDS, load_command
from harpctl.errors import ExitCode
from tests.meta.cli_doc import CODES, FILE, generate_document, shown_parameters


def test_the_document_is_the_help_of_the_commands() -> None:
    assert FILE.read_text(encoding="utf-8") == generate_document(), "write it anew: python -m tests.meta.cli_doc"


def test_every_exit_code_is_explained() -> None:
    assert set(CODES) == set(ExitCode)


def test_every_command_that_reports_has_json() -> None:
    for name in {name for names in COMMANDS.values() for name in names} - {"bench", "lab"}:
        assert "--json" in {option for param in shown_parameters(load_command(name)) for option in param.opts}, (
            name
        )
