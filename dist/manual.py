# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions of the shells, made from the commands themselves."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
from click_man.man import ManPage

from dist.make import BUILD, TIME
from harpctl.build_info import build_version
from harpctl.cli import COMPLETION, app
from harpctl.cli import of_lab as is_of_lab

PAGES = "usr/share/man/man1"
SHELLS = {  # where each looks
    "bash": "usr/share/bash-completion/completions/harpctl",
    "zsh": "usr/share/zsh/vendor-completions/_harpctl",
    "fish": "usr/share/fish/vendor_completions.d/harpctl.fish",
}


def _escaped(text: str) -> str:
    """Return text whose lines are none of roff's requests."""
    lines = text.replace("\\", r"\e").strip().splitlines()
    return "\n".join(rf"\&{line.strip()}" if line.strip()[:1] in {".", "'"} else line.strip() for line in lines)


def _page(name: str, short: str) -> ManPage:
    page = ManPage(name)
    page.version = build_version()
    page.date = time.strftime("%Y-%m-%d", time.gmtime(TIME))
    page.short_help = _escaped(short)
    return page


def _summary(command: click.Command) -> str:
    return str(command.help or "").strip().partition("\n")[0].rstrip(".")


def _pages(command: click.Command, parent: click.Context | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the page of a command and of each below it."""
    context = command.context_class(command, info_name=name, parent=parent)
    page = _page(context.command_path.replace(" ", "-"), _summary(command))
    page.synopsis = " ".join(command.collect_usage_pieces(context))
    page.description = _escaped(command.help or "")
    records = (option.get_help_record(context) for option in command.get_params(context))
    page.options = [(names, _escaped(text)) for names, text in filter(None, records)]
    below = {}
    if isinstance(command, click.Group):
        commands = ((word, command.get_command(context, word)) for word in command.list_commands(context))
        below = {word: each for word, each in commands if each and not each.hidden}
    page.commands = [(word, _escaped(_summary(each))) for word, each in below.items()]
    yield page.command, str(page)
    for word, each in below.items():
        yield from _pages(each, context, word)


def _perf_page() -> str:
    """Return the page of harp-perf: its help as it is."""
    done = subprocess.run([str(BUILD / "harp-perf"), "--help"], capture_output=True, text=True, check=True)
    page = _page("harp-perf", "measure any NCCL net plugin between processes, without a GPU")
    page.synopsis = "[OPTIONS]"
    lines = done.stdout.replace("\\", r"\e").replace("-", r"\-").splitlines()
    page.description = "\n".join([".nf", *(rf"\&{line}" for line in lines), ".fi"])
    return str(page)


def _completion(shell: str) -> str:
    environment = {**os.environ, COMPLETION: f"{shell}_source"}
    argv = [sys.executable, "-c", "import sys; sys.argv[0] = 'harpctl'; from harpctl.cli import main; main()"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.strip() + "\n"


def stage_pages(stage: Path, *, of_lab: bool) -> None:
    """Put the manual pages where a host has them: those of the lab's commands, or all others."""
    folder = stage / PAGES
    folder.mkdir(parents=True)
    pages = list(_pages(app, None, "harpctl"))
    for name, text in [*pages, ("harp-perf", _perf_page())]:
        if is_of_lab("".join(name.split("-")[1:2])) == of_lab:
            (folder / f"{name}.1.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def stage_completion(stage: Path) -> None:
    """Put the completions where each shell has them."""
    for shell, path in SHELLS.items():
        (stage / path).parent.mkdir(parents=True)
        (stage / path).write_text(_completion(shell), encoding="utf-8")
