# SPDX-License-Identifier: Apache-2.0
"""Hints are commands to paste: they contain what was requested, and every one of the source is executed."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harpctl import hints
from harpctl.cli import app, load_command
from harpctl.hints import COMMAND, complete_hint
from tests.harpctl.machine import build_machine

PACKAGE = Path(hints.__file__).parent
MENTION = re.compile(r"harpctl (?:[a-z]+)\b")
BLANK = re.compile(r"(?<= )(?:1|[A-Z]{3,})(?= )")  # what a person replaces
FILLED = "1"  # what a hint is given when it is made: a number, a name, an id
USAGE = 2


def context_of(*words: str) -> click.Context:
    """Return the context in which a command with these words runs."""
    root = app.make_context("harpctl", list(words))
    return load_command(words[0]).make_context(words[0], list(words[1:]), parent=root)


@pytest.mark.parametrize(
    ("words", "hint", "placed"),
    [
        (
            "setup --root /img --dry-run --gpus 2",
            "Ask for fewer: harpctl setup --hugepages 3",
            "Ask for fewer: harpctl setup --hugepages 3 --gpus=2 --dry-run --root=/img",
        ),
        (
            "setup --root /img --dry-run",
            "`harpctl rollback --force` restores; see `harpctl facts`.",
            "`harpctl rollback --force --dry-run --root=/img` restores; see `harpctl facts --root=/img`.",
        ),
        ("setup --gpus 2", "Or: harpctl setup --gpus 8", "Or: harpctl setup --gpus 8"),
        ("install --json", "Run: sudo harpctl install", "Run: sudo harpctl install"),
        ("rollback x1 --root '/a b'", "Again: harpctl rollback", "Again: harpctl rollback '--root=/a b' x1"),
        ("setup --root /img", "Run: harpctl confirm", "Run: harpctl confirm"),
        ("setup --root /img", "Get the harpctl of that plugin.", "Get the harpctl of that plugin."),
        (
            "setup --root /img",
            "One: harpctl setup --now  # on the host",
            "One: harpctl setup --now --root=/img  # on the host",
        ),
    ],
)
def test_a_hint_carries_the_options_of_the_command(words: str, hint: str, placed: str) -> None:
    assert complete_hint(hint, context_of(*shlex.split(words))) == placed


def test_a_hint_of_another_host_acts_there() -> None:
    context = context_of("setup", "-H", "a,b", "--remote", "/opt/harpctl")
    assert complete_hint("Or: harpctl setup --gpus 8", context, [("--hosts", ["-H", "b"])]) == (
        "Or: harpctl setup --gpus 8 --remote=/opt/harpctl -H b"
    )


def test_an_error_of_a_command_has_its_hint_placed(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "an image", "rocky-9", "prepared")
    result = CliRunner().invoke(
        app, ["setup", "--root", str(root), "--dry-run", "--hugepages", "9999999", "--no-network"]
    )
    remedy = next(line for line in result.output.splitlines() if "Ask for fewer" in line)
    command = remedy.partition(": ")[2]
    words = shlex.split(command)
    assert {"--dry-run", f"--root={root}", "--no-network"} <= set(words)
    assert CliRunner().invoke(app, words[1:]).exit_code == 0, command


def test_a_hint_that_names_a_command_which_was_not_imported_is_placed(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "harpctl", "enable", "--root", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[1:] == [f"  Run: harpctl install --root={tmp_path}"]


# ---- every hint of the source ----


def texts_of_errors() -> Iterator[tuple[str, str]]:
    """Yield the texts of errors and notes, with where; a value in it is FILLED."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {
                "HarpError",
                "_conf_error",
                "_archive_error",
                "layout_error",
            }:
                for argument in node.args:
                    yield f"{path.stem}:{argument.lineno}", _render_node(argument)


def _render_node(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value) if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else FILLED for part in node.values)
    if isinstance(node, ast.IfExp):
        return f"{_render_node(node.body)}\n{_render_node(node.orelse)}"
    return ""


FOUND = [(where, text) for where, text in texts_of_errors() if MENTION.search(text)]


def commands_of(text: str) -> list[str]:
    return [match["ticked"] or match["last"] for match in COMMAND.finditer(text)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_machine(tmp_path_factory.mktemp("hints") / "an image", "rocky-9", "gpu2")


def test_hints_were_found() -> None:
    assert len([text for _where, text in FOUND if commands_of(text)]) > 15


@pytest.mark.parametrize(("where", "text"), FOUND, ids=[where for where, _text in FOUND])
def test_every_hint_is_executed(where: str, text: str, image: Path) -> None:
    del where
    for command in commands_of(complete_hint(text, context_of("setup", "--root", str(image), "--dry-run"))):
        name, *rest = shlex.split(command)
        target = load_command(name)
        target.make_context(name, list(rest))  # raises where the words are wrong
        takes = {option for param in target.params for option in param.opts}
        assert ("--root" in takes) == (f"--root={image}" in rest), command
        assert ("--dry-run" in takes) == ("--dry-run" in rest), command
        if "--dry-run" in takes or name in {"facts", "status", "validate", "doctor", "topo"}:
            before = {path: path.stat().st_mtime_ns for path in image.rglob("*") if not path.is_symlink()}
            code = CliRunner().invoke(app, [name, *rest]).exit_code
            assert code != USAGE or BLANK.search(command), command
            after = {path: path.stat().st_mtime_ns for path in image.rglob("*") if not path.is_symlink()}
            assert after == before, command
