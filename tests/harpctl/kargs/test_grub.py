# SPDX-License-Identifier: Apache-2.0
"""/etc/default/grub and its drop-ins: edited in place, with bash and augeas as the judges."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from harpctl.errors import HarpError
from harpctl.facts.model import GIB, MIB
from harpctl.kargs import shell
from harpctl.kargs.cmdline import HugepageArgs, argument, holds, split
from harpctl.kargs.grub import EXTRAS, MAIN, edited_defaults, final_value
from tests.draws import draws
from tests.harpctl.kargs import augeas

G50 = HugepageArgs(page_size=GIB, count=50)
OURS = str(G50)
PATH = "/etc/default/grub"
DROPIN = "/etc/default/grub.d/60-more.cfg"
VARIABLES = (MAIN, *EXTRAS, "GRUB_DEFAULT", "OTHER")

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
needs_augeas = pytest.mark.skipif(not augeas.is_there(), reason="needs libaugeas0 and augeas-lenses")


def edited(text: str, wanted: HugepageArgs | None = G50) -> str:
    return edited_defaults([(PATH, text)], wanted).get(PATH, text)


# ---- by example ----


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f'{MAIN}=""\n', f'{MAIN}="{OURS}"\n'),
        (f'{MAIN}="quiet"\n', f'{MAIN}="quiet {OURS}"\n'),
        (f'{MAIN}="quiet "\n', f'{MAIN}="quiet {OURS}"\n'),
        (f"{MAIN}='quiet'\n", f"{MAIN}='quiet {OURS}'\n"),
        (f"{MAIN}=quiet\n", f'{MAIN}="quiet {OURS}"\n'),
        (f"{MAIN}=\n", f'{MAIN}="{OURS}"\n'),
        (f"{MAIN}=a\\ b\n", f'{MAIN}="a b {OURS}"\n'),
        (f'{MAIN}="a"b\n', f'{MAIN}="ab {OURS}"\n'),
        (f'{MAIN}=a"b"\n', f'{MAIN}=a"b {OURS}"\n'),
        (f'  export {MAIN}="quiet"  # why\n', f'  export {MAIN}="quiet {OURS}"  # why\n'),
        (f'A=1; {MAIN}="x"; B=2\n', f'A=1; {MAIN}="x {OURS}"; B=2\n'),
        (f'{MAIN}="a"\n{MAIN}="b"\n', f'{MAIN}="a"\n{MAIN}="b {OURS}"\n'),
        (f'{MAIN}="a"\n{MAIN}+=" b"\n', f'{MAIN}="a {OURS}"\n{MAIN}+=" b"\n'),
        (f'{MAIN}+=" b"\n', f'{MAIN}+=" b {OURS}"\n'),
        (f'{MAIN}="a \\\n  b"\n', f'{MAIN}="a \\\n  b {OURS}"\n'),
        (f'{MAIN}="a \\\n  hugepages=3 \\\n  b"\n', f'{MAIN}="a \\\n  b {OURS}"\n'),
        (f'{MAIN}="a\n  b"\n', f'{MAIN}="a\n  b {OURS}"\n'),
        (f'{MAIN}="q"\r\nA=1\r\n', f'{MAIN}="q {OURS}"\r\nA=1\r\n'),
        ("A=1\r\n", f'A=1\r\n{MAIN}="{OURS}"\r\n'),
        (f'{MAIN}="q"', f'{MAIN}="q {OURS}"'),
        ("A=1", f'A=1\n{MAIN}="{OURS}"\n'),
        ("", f'{MAIN}="{OURS}"\n'),
        (f'# {MAIN}="no"\n', f'# {MAIN}="no"\n{MAIN}="{OURS}"\n'),
        (f'{MAIN}="a {OURS} b {OURS}"\n', f'{MAIN}="a b {OURS}"\n'),
        (f"{MAIN}=hugepages=3\n", f'{MAIN}="{OURS}"\n'),
        (f'{MAIN}="a huge""pages=3 b"\n', f'{MAIN}="a"" b {OURS}"\n'),
        (f'N=3\n{MAIN}="a hugepages=$N b"\n', f'N=3\n{MAIN}="a b {OURS}"\n'),
        (
            f'{EXTRAS[0]}="quiet {OURS} splash"\n{MAIN}="{OURS}"\n#{EXTRAS[1]}="x {OURS}"\n',
            f'{EXTRAS[0]}="quiet splash"\n{MAIN}="{OURS}"\n#{EXTRAS[1]}="x {OURS}"\n',
        ),
        (f'{EXTRAS[0]}="{OURS}"\n{MAIN}=""\n', f'{EXTRAS[0]}=""\n{MAIN}="{OURS}"\n'),
        (f'{MAIN}="dyndbg=\\"file a +p\\""\n', f'{MAIN}="dyndbg=\\"file a +p\\" {OURS}"\n'),
        (f'{MAIN}="cost=\\$5 \\\\ \\`"x\n', f'{MAIN}="cost=\\$5 \\\\ \\`x {OURS}"\n'),
        (f'G=`lsb_release -i -s 2> /dev/null || echo x`\n{MAIN}="a"\n', None),
        (f'G="$(sed \'s, release .*$,,g\' /etc/x)"\n{MAIN}="a"\n', None),
        (f'f() {{ echo "a # b"; }}\nif [ -f /x ]; then A="1"; fi\n{MAIN}="a"\n', None),
        (f'case $X in a) A=1;; *) A="2" ;; esac\n{MAIN}="a"\n', None),
        (f'[ -f /x ] && A=1\n{MAIN}="a"\n', None),
        (f'echo a >/dev/null 2>&1 | cat\n{MAIN}="a"\n', None),
    ],
)
def test_edited(old: str, new: str | None) -> None:
    if new is None:
        new = old.replace(f'{MAIN}="a"', f'{MAIN}="a {OURS}"')
    assert edited(old) == new
    assert edited(new) == new


def test_what_already_holds_keeps_every_byte() -> None:
    text = f'{EXTRAS[0]}="default_hugepagesz=1G"\n{MAIN}="hugepagesz=1G hugepages=50 default_hugepagesz=1G"\n'
    assert edited(text) == text


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (f'A=1\n{MAIN}="a\n', 2, 'a " that is never closed'),
        (f"A=1\n\n{MAIN}='a\n", 3, "a ' that is never closed"),
        (f'{MAIN}="a $(cat /x) b"\n', 1, "a command"),
        (f"A=1\n{MAIN}=`cat /x`\n", 2, "a command"),
        (f'A=$(echo "x\n{MAIN}="a"\n', 2, "never closed"),
        (f'if [ -f /x ]; then\n  {MAIN}="a"\nfi\n', 2, "under a condition"),
        (f'true && {MAIN}="a"\n', 1, "under a condition"),
        (f"{MAIN}=quiet splash\n", 1, "without quotes"),
        (f'cat <<EOF\n{MAIN}="a"\nEOF\n', 1, "here-document"),
        (f"{MAIN}=$'a'\n", 1, "string"),
    ],
)
def test_what_nobody_can_parse_is_refused(text: str, line: int, what: str) -> None:
    with pytest.raises(HarpError) as caught:
        edited(text)
    assert caught.value.message.startswith(f"{PATH}:{line}: ")
    assert what in caught.value.message
    assert "--no-kernel-args" in caught.value.hint


@pytest.mark.parametrize("value", ['a -- b"', 'a x=\\"b'])
def test_what_would_not_reach_the_kernel_is_refused(value: str) -> None:
    with pytest.raises(HarpError, match="does not understand"):
        edited(f'{MAIN}="{value.rstrip(chr(34))}"\n')


def test_drop_in_that_extends_leaves_the_words_in_the_first_file() -> None:
    files = [(PATH, f'{MAIN}="a"\n'), (DROPIN, f'{MAIN}="${MAIN} b hugepages=3"\n')]
    assert edited_defaults(files, G50) == {
        PATH: f'{MAIN}="a {OURS}"\n',
        DROPIN: f'{MAIN}="${MAIN} b"\n',
    }


def test_drop_in_that_replaces_gets_the_words() -> None:
    files = [(PATH, f'{MAIN}="a {OURS}"\n'), (DROPIN, f'{MAIN}="b"\n')]
    assert edited_defaults(files, G50) == {DROPIN: f'{MAIN}="b {OURS}"\n'}


def test_stale_words_in_the_default_variable_of_a_cloud_image() -> None:
    cloud = "/etc/default/grub.d/50-cloudimg-settings.cfg"
    files = [
        (PATH, f'{EXTRAS[0]}="quiet"\n{MAIN}=""\n'),
        (cloud, f'{EXTRAS[0]}="console=ttyS0 hugepagesz=1G hugepages=9"\n'),
    ]
    new = edited_defaults(files, G50)
    assert new == {
        PATH: f'{EXTRAS[0]}="quiet"\n{MAIN}="{OURS}"\n',
        cloud: f'{EXTRAS[0]}="console=ttyS0"\n',
    }


def test_removal_leaves_the_file_as_it_was() -> None:
    text = f"# c\n{MAIN}='a  b' # d\nA=1"
    assert edited(edited(text), None) == text
    assert edited(text, None) == text


# ---- by property ----

PLAIN = ["quiet", "ro", "root=UUID=1", "console=ttyS0,115200", "a=b=c", "x.y=1"]
HUGE = [
    "hugepages=3",
    "hugepagesz=1G",
    "hugepagesz=2M",
    "default_hugepagesz=1GB",
    OURS,
    "hugepagesz=1G hugepages=9",
]
ODD = ['d="f g"', "cost=$5", "back\\slash", "tick`", "it's"]


def double_quoted(value: str) -> str:
    return '"' + "".join(f"\\{character}" if character in '"\\$`' else character for character in value) + '"'


@st.composite
def values(draw: st.DrawFn) -> str:
    """Return the source of a value, in one of the shell's ways to quote."""
    words = draw(st.lists(st.sampled_from(PLAIN + HUGE + ODD), max_size=5))
    text = draw(st.sampled_from([" ", "  "])).join(words) + draw(st.sampled_from(["", " "]))
    style = draw(st.sampled_from(["double", "single", "bare", "mixed", "continued", "lines"]))
    if style == "single" and "'" not in text:
        return f"'{text}'"
    if style == "bare":
        return "".join(
            f"\\{character}" if character in " \t\"'\\$`;&|<>()#" else character for character in text
        )
    if style == "mixed" and words:
        cut = draw(st.integers(0, len(text)))
        return double_quoted(text[:cut]) + double_quoted(text[cut:])
    if style == "continued":
        return double_quoted(text).replace("  ", " \\\n ")
    if style == "lines":
        return double_quoted(text).replace("  ", "\n")
    return double_quoted(text)


@st.composite
def lines(draw: st.DrawFn) -> str:
    kind = draw(
        st.sampled_from(["assign", "assign", "assign", "comment", "blank", "other", "refer", "append"])
    )
    if kind == "comment":
        return draw(st.sampled_from(["# a comment", f'#{MAIN}="x {OURS}"', "  # it's", '#"']))
    if kind == "blank":
        return draw(st.sampled_from(["", "   ", "\t"]))
    if kind == "other":
        return draw(
            st.sampled_from(["GRUB_DEFAULT=0", "OTHER='it is'", 'OTHER="a # b"', "GRUB_DEFAULT=saved # c"])
        )
    name = draw(st.sampled_from(VARIABLES[:3]))
    if kind == "refer":
        form = draw(st.sampled_from(["$%s", "${%s}"]))
        return f'{name}="{form % name} {draw(st.sampled_from(PLAIN + HUGE))}"'
    if kind == "append":
        return f'{name}+=" {draw(st.sampled_from(PLAIN + HUGE))}"'
    lead = draw(st.sampled_from(["", "", "export ", " "]))
    return f"{lead}{name}={draw(values())}{draw(st.sampled_from(['', '', ' # why', ' ']))}"


@st.composite
def texts(draw: st.DrawFn) -> str:
    text = "\n".join(draw(st.lists(lines(), max_size=6)))
    if draw(st.booleans()) and text:
        text += "\n"
    is_dos = draw(st.integers(0, 5)) == 0
    if is_dos and re.search(r"[ \t\\](\n|\Z)|^\n", text, re.MULTILINE):
        is_dos = False  # bash would take the CR for a command or an escaped character
    return text.replace("\n", "\r\n") if is_dos else text


WANTED = st.builds(HugepageArgs, page_size=st.sampled_from([GIB, 2 * MIB]), count=st.integers(1, 60))


def by_bash(folder: Path, files: Sequence[str]) -> dict[str, str]:
    """Source the files as grub-mkconfig does and give the variables."""
    script = ""
    for number, text in enumerate(files):
        path = folder / f"file{number}"
        path.write_bytes(text.encode())
        script += f". {shlex.quote(str(path))}\n"
    script += "".join(f'printf "%s\\0" "${name}"\n' for name in VARIABLES)
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", script], capture_output=True, check=True, env={}, timeout=20
    )
    assert done.stderr == b"" or any("\r" in text for text in files)  # bash takes a CR for a command
    return dict(zip(VARIABLES, done.stdout.decode().split("\0"), strict=False))


def others(cmdline: str) -> list[str]:
    return [word.text for word in split(cmdline) if "hugepages" not in argument(word.text)[0]]


@needs_bash
@given(st.lists(texts(), min_size=1, max_size=3), st.one_of(st.none(), WANTED))
@example([f'{MAIN}=""'], G50)
@example([f'{MAIN}="hugepagesz=2M"\r\n{MAIN}="${MAIN} hugepages=3"'], G50)
@example([f'{MAIN}="hugepagesz=2M"', f'{MAIN}+=" hugepages=3"\n'], G50)
@draws(150)
def test_bash_reads_what_was_meant(tmp_path: Path, contents: list[str], wanted: HugepageArgs | None) -> None:
    files = [(f"/{number}", text) for number, text in enumerate(contents)]
    before = by_bash(tmp_path, contents)
    assume(all(value.count('"') % 2 == 0 for value in before.values()))
    try:
        new = edited_defaults(files, wanted)
    except HarpError:
        assert wanted is not None
        assert is_torn_pair(contents, before)
        return
    changed = [(path, new.get(path, text)) for path, text in files]
    after = by_bash(tmp_path, [text for _path, text in changed])
    for name in (MAIN, *EXTRAS):
        assert others(after[name]) == others(before[name])
        joined = after[MAIN] if name == MAIN else f"{after[MAIN]} {after[name]}"
        assert holds(joined, wanted)
        assert final_value(changed, name).split() == after[name].split()
    for name in ("GRUB_DEFAULT", "OTHER"):
        assert after[name] == before[name]
    assert edited_defaults(changed, wanted) == {}
    for (path, old), (_path, text) in zip(files, changed, strict=True):
        end = "\r\n" if "\r\n" in old else "\n"
        added = ("" if old.endswith("\n") or not old else "\n") + f"{MAIN}={end}"
        assert outside(text) == outside(old) or (path == "/0" and outside(text) == outside(old) + added)


def outside(text: str) -> str:
    """Return everything but the values of our variables."""
    result = ""
    at = 0
    for assignment in shell.parse(PATH, text).assignments:
        if assignment.name in VARIABLES[:3]:
            result += text[at : assignment.start]
            at = assignment.end
    return result + text[at:]


def is_torn_pair(contents: Sequence[str], variables: dict[str, str]) -> bool:
    """Return whether one value holds a size whose count is in a later one: ours would come between."""
    later = [variables[extra] for extra in EXTRAS]
    for text in contents:
        for assignment in shell.parse(PATH, text).assignments:
            extends = assignment.appends or any(
                character.variable == MAIN for character in assignment.characters
            )
            if assignment.name == MAIN and extends:
                later.append(
                    "".join(character.text for character in assignment.characters if not character.raw)
                )
    for value in later:
        names = [argument(word.text)[0] for word in split(value)]
        if next((name for name in names if name in {"hugepages", "hugepagesz"}), "") == "hugepages":
            return True
    return False


@needs_augeas
@given(texts(), st.one_of(st.none(), WANTED))
@draws(150)
def test_augeas_reads_what_was_meant(text: str, wanted: HugepageArgs | None) -> None:
    before = augeas.read(text)
    assume(before is not None)
    assume(not any(mark in text for mark in ('\\"', "$5", "`")))  # shlex does not take these escapes back
    try:
        new = edited(text, wanted)
    except HarpError:
        assume(False)  # a torn pair, which the test by bash knows
        raise
    after = augeas.read(new)
    assert before is not None
    assert after is not None
    if not any(name == MAIN for name, _value in before) and wanted is not None:
        name, value = after.pop()
        assert (name, unquoted(value)) == (MAIN, str(wanted))
    assert [name for name, _value in after] == [name for name, _value in before]
    for (name, old_value), (_name, new_value) in zip(before, after, strict=True):
        if name not in VARIABLES[:3]:
            assert new_value == old_value
        else:
            assert others(unquoted(new_value)) == others(unquoted(old_value))
    main = [value for name, value in after if name == MAIN]
    if wanted is not None and main and not any("$" in value for _name, value in after):
        assert holds(unquoted(main[-1]), wanted)


def unquoted(value: str) -> str:
    return "".join(shlex.split(value.replace("\\\n", ""))).rstrip("\r")
