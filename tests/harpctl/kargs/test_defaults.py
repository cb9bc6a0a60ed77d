# SPDX-License-Identifier: Apache-2.0
"""The shell code in GRUB's defaults, evaluated by shells: every later kernel gets what is wanted."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import assume, example, given

from harpctl.kargs.cmdline import HugepageArgs, parse_argument, reserves_exactly, split_words
from harpctl.kargs.defaults import shell_code, with_code
from harpctl.units import GIB, MIB
from tests.harpctl.kargs.test_cmdline import WANTED, draw_cmdline

G50 = HugepageArgs(page_size=GIB, count=50)
M100 = HugepageArgs(page_size=2 * MIB, count=100)
OURS = str(G50)
MAIN, EXTRA = "GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"
SHELLS = [shell for shell in ("dash", "bash", "busybox sh") if shutil.which(shell.split()[0])]


def evaluate_file(text: str, shell: str = SHELLS[0]) -> tuple[str, str]:
    """Return both variables after a file, as grub-mkconfig has them: it stops at the first error."""
    script = f'set -e\n{text}\nprintf "%s\\0%s" "${MAIN}" "${EXTRA}"'
    done = subprocess.run([*shell.split(), "-c", script], capture_output=True, check=True, text=True, timeout=20)
    assert done.stderr == ""
    main, _end, extra = done.stdout.partition("\0")
    return main, extra


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("main", "extra", "new", "new_extra"),
    [
        ("", "", OURS, ""),
        ("quiet", "splash", f"{OURS} quiet", "splash"),
        (f"a {OURS} b {OURS}", OURS, f"{OURS} a b", ""),  # what the vendor's sed leaves after two runs
        ("hugepages=1024", "", f"{OURS} hugepagesz=2M hugepages=1024", ""),
        ("default_hugepagesz=1G hugepages=4", "", OURS, ""),
        ("a", "default-hugepagesz=2M hugepages=4", f"{OURS} a", "hugepagesz=2M hugepages=4"),
        ("hugepagesz=2M hugepages=5 a", "hugepages=3", f"{OURS} hugepagesz=2M hugepages=5 a", "hugepages=3"),
        ("hugepagesz=1048576K hugepages=5", "b", OURS, "b"),
        (f"a {M100} b", "", f"{OURS} a b", ""),  # an earlier setup with the other size
        ("a -- b hugepages=3", "c hugepages=4", f"{OURS} a -- b hugepages=3", "c hugepages=4"),
        ('dyndbg="file a.c +p; hugepages=3" b', "", f'{OURS} dyndbg="file a.c +p; hugepages=3" b', ""),
        ("*", "/*", f"{OURS} *", "/*"),
    ],
)
def test_what_the_shell_makes_of_it(shell: str, main: str, extra: str, new: str, new_extra: str) -> None:
    before = f"{MAIN}='{main}'\n{EXTRA}='{extra}'\n"
    assert evaluate_file(with_code(before, G50), shell) == (new, new_extra)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "text",
    [
        f'{MAIN}="a"\nunset {MAIN}\n',
        f'if true; then {MAIN}="a"; fi',
        f'{MAIN}="$(echo a)"\nexport {MAIN}\n',
        f"read {MAIN} <<EOF\na hugepages=3\nEOF\n",
        "",
    ],
)
def test_whatever_the_file_does_before(shell: str, text: str) -> None:
    main, _extra = evaluate_file(with_code(text, G50), shell)
    assert reserves_exactly(main, G50)


def test_the_code_is_there_once() -> None:
    once = with_code('A="1"', G50)
    assert with_code(once, G50) == once
    assert with_code(with_code('A="1"\n', M100), G50) == once
    assert evaluate_file(with_code(once.replace('A="1"', "A=2"), M100))[0] == str(M100)


def test_no_line_looks_like_a_setting_to_other_editors() -> None:
    for line in shell_code(G50).splitlines():
        assert not line.startswith(MAIN)
        assert f'{MAIN}="' not in line
        assert not (MAIN in line and line.endswith('"'))


@example(main="hugepagesz=2M", extra="hugepages=1", wanted=G50)
@example(main="default_hugepagesz=2M hugepagesz=2M ro", extra="hugepages=1", wanted=G50)
@given(main=draw_cmdline(), extra=draw_cmdline(), wanted=WANTED)
def test_every_command_line_comes_to_hold(main: str, extra: str, wanted: HugepageArgs) -> None:
    assume(not any(word in f"{main}{extra}" for word in ("'", '"y', "hugepagesz=x", "hugepagesz= ")))
    text = with_code(f"{MAIN}='{main}'\n{EXTRA}='{extra}'\n", wanted)
    new, new_extra = evaluate_file(text)
    for before, after in ((main, new), (f"{main} {extra}", f"{new} {new_extra}")):
        assert reserves_exactly(after, wanted)
        assert _other_words(after) == _other_words(before)
    assert evaluate_file(with_code(f"{MAIN}='{new}'\n{EXTRA}='{new_extra}'\n", wanted)) == (new, new_extra)


def _other_words(cmdline: str) -> list[str]:
    names = {"default_hugepagesz", "hugepagesz", "hugepages"}
    words = [word.text for word in split_words(cmdline)]
    end = words.index("--") if "--" in words else len(words)
    return [word for at, word in enumerate(words) if at >= end or parse_argument(word)[0] not in names]
