# SPDX-License-Identifier: Apache-2.0
"""The documents name only what exists, and repeat the code's tables as they are.

A table of the code that the text repeats is listed here, so that who changes one finds the other.
"""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from harpctl.cli import app
from tests.meta.config_doc import load_rows
from tests.meta.test_layers import ALLOWED

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "plugin" / "src"
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
COMMANDED = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*/*.md")),
    *sorted((ROOT / "docs" / "how-to" / "recipes").glob("*.md")),
)
OF_FOLDERS = ("box", "tests/trees")
DOCS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / folder / "README.md" for folder in OF_FOLDERS),
    ]
)

LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]+)?\)")
REPO_PATH = re.compile(r"(?<![\w/.<>-])(?:plugin|tests|docs|harpctl|dist|\.ci)/[\w./<>-]*\w")
LAYER_PATH = re.compile(r"`(\w+/\w+\.[ch])`")
IN_TICKS = re.compile(r"`(?:struct )?([a-z]\w*)`")
HARP_NAME = re.compile(r"\bHARP_[A-Z]\w*")
OF_HARP = re.compile(r"[a-z]\w*_\w*[a-z]\w*(?:\(\))?")
OF_OTHERS = {"sk_buff", "sock_def_readable", "tcp_limit_output_bytes", "unregister_netdevice"}  # Linux's
OF_OTHERS |= {"nic_rules"}  # what is gone
TESTED = re.compile(r"(tests/[\w/]+\.py)::(\w+)|`(tests/[\w/]+\.py)`, `(test_\w+)`")
BUILT = "plugin/build/"
PACKED = "dist/out"
GENERATED = ("drop_", "harp_eni_", "harp_peer_", "harp_engine_")  # put together from the tables of statistics
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LAYER = re.compile(r"\*\*(\w+)\*\* \((.*?)\):")
STATUS = re.compile(r"(HARP_ERR_\w+), (\w+)")
BARRIER = re.compile(r"(?<!\w)\([A-Z]\)")
PROSE_COLUMNS = 100
ARCHITECTURE_WORDS = 2100
WORDS = 35_000  # as wc -w counts, of all documents: what is added replaces something
OWN_FORM = {"cli.md"}  # generated


def read_document(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def join_lines(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


def relative_path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as the platforms that show it make them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", read_document(path), flags=re.DOTALL), re.MULTILINE
    )
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def list_items(text: str) -> list[str]:
    """Return the items of all lists of a document, each as one line."""
    return [join_lines(item) for item in re.findall(r"^- (.*\n(?:  .*\n)*)", text + "\n", re.MULTILINE)]


def read_layers(text: str) -> dict[str, set[str]]:
    """Return the items **NAME** (WHAT IT MAY INCLUDE) of a document."""
    found = [match.groups() for item in list_items(text) if (match := LAYER.match(item))]
    return {name: set() if may == "nothing" else set(may.split(", ")) for name, may in found}


def read_sources() -> str:
    """Return all C of the product."""
    return "".join(read_document(path) for path in sorted(SRC.rglob("*")) if path.suffix in {".c", ".h", ".def"})


def code_lines(text: str) -> Iterator[str]:
    """Yield the commands of indented blocks, of shell fences and of `ticks`, with continued lines joined."""
    whole = text.replace("\\\n", " ")
    for line in whole.splitlines():
        words = line.split()
        if line.startswith("    ") and words and not words[0].endswith(":"):  # else it is a program's output
            yield " ".join(words)
    for block in SHELL.findall(whole):
        yield from (" ".join(line.partition(" # ")[0].split()) for line in block.splitlines())
    unfenced = re.sub(r"```.*?```", "", whole, flags=re.DOTALL)
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", unfenced))


def find_commands(start: str) -> list[list[str]]:
    """Find the commands in the documents that show some; return what follows, in words."""
    pattern = re.compile(rf"(?:^|\s)(?!tests/)(?:\S*/)?{re.escape(start)}(?=\s|$)(.*)")
    lines = [line for path in COMMANDED for line in code_lines(read_document(path))]
    return [match[1].split() for line in lines if (match := pattern.search(line))]


# ---- names ----


@pytest.mark.parametrize("doc", DOCS, ids=relative_path)
def test_links_lead_somewhere(doc: Path) -> None:
    dead = []
    for target, anchor in LINK.findall(read_document(doc)):
        if "://" in target:
            continue
        path = doc.parent / target if target else doc
        if not path.exists() or (anchor and anchor not in anchors_of(path)):
            dead.append(target + anchor)
    assert not dead


@pytest.mark.parametrize("doc", DOCS, ids=relative_path)
def test_files_exist(doc: Path) -> None:
    text = read_document(doc)
    wrong = []
    for name in REPO_PATH.findall(text):
        if name.startswith((BUILT, PACKED)):
            continue
        if not any(ROOT.glob(re.sub(r"<\w+>", "*", name))):
            wrong.append(name)
    wrong += [
        name for name in LAYER_PATH.findall(text) if name.split("/")[0] in ALLOWED and not (SRC / name).is_file()
    ]
    assert not wrong


def prose_lines(text: str) -> Iterator[str]:
    """Yield the lines that can be wrapped: no tables, code, headings or pictures."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("|", "    ", "#", "<", "![")):
            yield line


@pytest.mark.parametrize("doc", [doc for doc in DOCS if doc.name not in OWN_FORM], ids=relative_path)
def test_prose_is_wrapped(doc: Path) -> None:
    assert [line for line in prose_lines(read_document(doc)) if len(line) > PROSE_COLUMNS] == []


def test_architecture_is_short() -> None:
    assert len(read_document(ARCHITECTURE).split()) < ARCHITECTURE_WORDS


def test_documents_do_not_grow() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.splitlines()]
    assert len(files) > len(DOCS) / 2
    assert sum(len(read_document(path).split()) for path in files if path.is_file()) <= WORDS


def test_documents_named_in_the_code_exist() -> None:
    named = set(re.findall(r"\bdocs/[\w/.-]*\w", read_sources()))
    assert named
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_built_files_are_targets() -> None:
    makefile = "".join(map(read_document, [ROOT / "plugin" / "Makefile", *(ROOT / "plugin").glob("*.mk")]))
    named = {name for doc in DOCS for name in REPO_PATH.findall(read_document(doc)) if name.startswith(BUILT)}
    assert {BUILT + "libnccl-net.so", BUILT + "harp-perf"} <= named
    for name in named:
        assert f"$(B)/{name.removeprefix(BUILT)}" in makefile, name


def test_variables_of_the_readme_are_those_of_the_source() -> None:
    known = {row["variable"] for row in load_rows()}
    named = set(HARP_NAME.findall(read_document(README)))
    assert named
    assert named <= known


@functools.cache
def known_words() -> set[str]:
    """Return all words of the product and of its tests."""
    parts = ("plugin", "box", "harpctl", "lightcc", "tiacc_training", "tests", "dist", "docs/how-to/grafana")
    listed = subprocess.run(["git", "ls-files", *parts], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.splitlines() if not re.search("/(corpus|meta)/", name)]
    kinds = {".c", ".h", ".def", ".py", ".mk", ".json", ".in"}
    return set(re.findall(r"\w+", "".join(read_document(path) for path in files if path.suffix in kinds)))


@pytest.mark.parametrize("doc", DOCS, ids=relative_path)
def test_functions_and_fields_named_alone_exist(doc: Path) -> None:
    """A name with an underscore that stands alone in `ticks` is of the code, or of what reads it."""
    codes = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", read_document(doc), flags=re.DOTALL))
    named = {code.removesuffix("()") for code in codes if OF_HARP.fullmatch(code)}
    gone = {name for name in named - known_words() - OF_OTHERS if not name.startswith(GENERATED)}
    assert not gone


@pytest.mark.parametrize("doc", DOCS, ids=relative_path)
def test_tests_named_exist(doc: Path) -> None:
    for path, name, other_path, other_name in TESTED.findall(join_lines(read_document(doc))):
        assert f"def {name or other_name}(" in read_document(ROOT / (path or other_path)), name or other_name


def test_constants_named_in_docs_exist() -> None:
    known = set(re.findall(r"\w+", read_sources()))
    known |= {name for word in known for name in [f"HARP_{word}", f"HARP_ERR_{word}"]}
    for doc in DOCS:
        assert set(HARP_NAME.findall(read_document(doc))) <= known, relative_path(doc)


def test_functions_and_fields_named_in_architecture_exist() -> None:
    known = set(re.findall(r"\w+", read_sources()))
    named = {name for name in IN_TICKS.findall(read_document(ARCHITECTURE)) if "_" in name}
    assert named
    assert sorted(named - known - {path.name for path in ROOT.iterdir()}) == []


# ---- commands ----


def test_harp_setup_has_the_commands_named() -> None:
    script = read_document(ROOT / "harp_setup")
    used = find_commands("harp_setup")
    assert {"demo", "test"} <= {words[0] for words in used if words}
    shown = subprocess.run([ROOT / "harp_setup", "help"], capture_output=True, text=True, check=True).stdout
    for words in used:
        if not words:
            continue
        assert re.search(rf"^\s+{re.escape(words[0])}\s", shown, re.MULTILINE), words
        assert re.search(rf"^\s+(?:\w+ \| )*{re.escape(words[0])}\b[^)]*\)", script, re.MULTILINE), words
        for option in words[1:]:
            assert not option.startswith("--") or option in shown, words


def _command_of(words: list[str]) -> list[str]:
    """Return the words that name a command, of a group or by itself."""
    command = app.get_command(click.Context(app), words[0])
    has_below = isinstance(command, click.Group) and (
        command.callback is None or {*words[1:2]} & {*command.commands}
    )
    return words[: 2 if has_below else 1]


@functools.cache
def _help_of(*command: str) -> str:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0, command
    return shown.output


def test_harpctl_has_the_commands_and_options_named() -> None:
    used = [words for words in find_commands("harpctl") if words]
    assert used
    for words in used:
        command = _command_of(words)
        shown = _help_of(*command)
        ours = words[len(command) : words.index("--") if "--" in words else None]
        for word in ours:
            assert not word.startswith("--") or re.search(rf"(?<!\S){word}(?!\S)", shown), words


def test_harp_perf_has_the_options_named() -> None:
    source = read_document(ROOT / "plugin" / "bench" / "options.c")
    used = [words for words in find_commands("harp-perf") if words]
    assert used
    for words in used:
        for word in words:
            if word.startswith("--"):
                assert re.search(rf"(?<![\w-]){word}(?![\w-])", source), word


def test_options_named_alone_exist() -> None:
    """An option in `ticks` with no command before it is one of the three programs'."""
    known = subprocess.run([ROOT / "harp_setup", "help"], capture_output=True, text=True, check=True).stdout
    known += _help_of("bench") + _help_of("lab", "bench")
    known += read_document(ROOT / "plugin" / "bench" / "options.c")
    named = {code.split()[0] for code in re.findall(r"`(--[^`]+)`", read_document(README))}
    assert named
    assert sorted(name for name in named if not re.search(rf"(?<![\w-]){name}(?![\w-])", known)) == []


def test_make_has_the_targets_named() -> None:
    makefiles = "".join(read_document(path) for path in sorted((ROOT / "plugin").glob("*.mk")))
    makefiles += read_document(ROOT / "plugin" / "Makefile")
    used = find_commands("make -C plugin")
    assert used
    for words in used:
        assert re.search(rf"^(?:[\w-]+ )*{re.escape(words[0])}(?: [\w-]+)*:", makefiles, re.MULTILINE), words


# ---- tables ----


def test_layers_are_those_that_are_checked() -> None:
    assert read_layers(read_document(ARCHITECTURE)) == ALLOWED


def test_statuses_map_to_the_codes_stated() -> None:
    source = read_document(SRC / "nccl" / "result.c")
    real = dict(re.findall(r"case (HARP_ERR_\w+):\s+return HARP_NCCL_(\w+);", source))
    stated = {}
    items = list_items(read_document(ARCHITECTURE))
    for status, code in (match.groups() for item in items if (match := STATUS.match(item))):
        word = code.removeprefix("nccl")
        stated[status] = re.sub(r"(?<!^)(?=[A-Z])", "_", word).upper()
    assert stated == real
    meanings = dict(re.findall(r"(HARP_ERR_\w+),\s*/\* (.+?) \*/", read_document(SRC / "base" / "status.h")))
    assert set(meanings) == set(stated)


def test_barriers_are_those_of_the_code() -> None:
    code = read_sources()
    items = [item for item in list_items(read_document(ARCHITECTURE)) if BARRIER.match(item)]
    stated = {name for item in items for name in BARRIER.findall(item)}
    assert stated == set(BARRIER.findall(code))


def test_glossary_is_sorted_and_defines_each_word_once() -> None:
    words = re.findall(r"^- \*\*(.*?)\*\*: ", read_document(GLOSSARY), re.MULTILINE)
    assert [word.casefold() for word in words] == sorted({word.casefold() for word in words})
    assert {"frame", "packet", "segment", "superframe", "message", "line", "burst", "flight"} <= set(words)
    assert {"path", "link", "engine", "credit", "early message"} <= set(words)


# ---- numbers ----


def test_limits_are_those_of_the_code() -> None:
    source = " ".join(read_sources().split())
    items = list_items(read_document(ROOT / "docs" / "reference" / "limits.md"))
    named = [match.groups() for item in items if (match := re.search(r"\(`(HARP_\w+)`\): (\d+);", item))]
    assert len(named) > 5
    for name, number in named:
        assert re.search(rf"\b{name} = {number}\b", source), name


# ---- folders ----


def test_the_index_lists_each_page_once() -> None:
    index = ROOT / "docs" / "README.md"
    pages = [path for path in (ROOT / "docs").rglob("*.md") if "decisions" not in path.parts and path != index]
    listed = [target for target, _anchor in LINK.findall(read_document(index)) if target.endswith(".md")]
    assert sorted(listed) == sorted(path.relative_to(index.parent).as_posix() for path in pages)
