# SPDX-License-Identifier: Apache-2.0
"""README and docs/architecture.md name only what exists, and repeat the code's tables and numbers.

A table or a number of the code that the text repeats is listed here, so that who changes one finds the other.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from harpctl.cli import GROUPS, app
from tests.meta.config_doc import rows
from tests.meta.test_layers import ALLOWED

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "plugin" / "src"
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
COMMANDED = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
DOCS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]+)?\)")
REPO_PATH = re.compile(r"(?<![\w/.<>-])(?:plugin|tests|docs|harpctl|\.ci)/[\w./<>-]*\w")
LAYER_PATH = re.compile(r"`(\w+/\w+\.[ch])`")
IN_TICKS = re.compile(r"`(?:struct )?([a-z]\w*)`")
HARP_NAME = re.compile(r"\bHARP_[A-Z]\w*")
BUILT = "plugin/build/"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tables(text: str) -> list[list[list[str]]]:
    """Split every table of a document into rows of cells, the heading first."""
    found: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            found.append([])
            inside = True
        if not set(line) <= set("|-: "):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def table(text: str, *heading: str) -> list[list[str]]:
    """Return the rows of the one table whose heading begins like this."""
    (rows,) = [rows for rows in tables(text) if tuple(rows[0][: len(heading)]) == heading]
    assert len(rows) > 1
    return rows[1:]


def sources() -> str:
    """All C of the product."""
    return "".join(read(path) for path in sorted(SRC.rglob("*")) if path.suffix in {".c", ".h", ".def"})


def code_lines(text: str) -> Iterator[str]:
    """Yield the commands of indented blocks and of `ticks`, with continued lines joined."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        words = line.split()
        if line.startswith("    ") and words and not words[0].endswith(":"):  # else it is what a program says
            yield " ".join(words)
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", joined))


def commands(start: str) -> list[list[str]]:
    """Find the commands in the documents that show some; return what follows, in words."""
    pattern = re.compile(rf"(?:^|\s)(?!tests/)(?:\S*/)?{re.escape(start)}(?=\s|$)(.*)")
    lines = [line for path in COMMANDED for line in code_lines(read(path))]
    return [match[1].split() for line in lines if (match := pattern.search(line))]


# ---- names ----


@pytest.mark.parametrize("doc", DOCS, ids=relative)
def test_links_lead_somewhere(doc: Path) -> None:
    dead = []
    for target, anchor in LINK.findall(read(doc)):
        if "://" not in target and not (doc.parent / target).exists():
            dead.append(target + anchor)
    assert not dead


@pytest.mark.parametrize("doc", DOCS, ids=relative)
def test_files_exist(doc: Path) -> None:
    text = read(doc)
    wrong = []
    for name in REPO_PATH.findall(text):
        if name.startswith(BUILT):
            continue
        if not any(ROOT.glob(re.sub(r"<\w+>", "*", name))):
            wrong.append(name)
    wrong += [
        name
        for name in LAYER_PATH.findall(text)
        if name.split("/")[0] in ALLOWED and not (SRC / name).is_file()
    ]
    assert not wrong


def test_documents_named_in_the_code_exist() -> None:
    named = set(re.findall(r"\bdocs/[\w/.-]*\w", sources()))
    assert named
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []


def test_built_files_are_targets() -> None:
    makefile = read(ROOT / "plugin" / "Makefile")
    named = {name for doc in DOCS for name in REPO_PATH.findall(read(doc)) if name.startswith(BUILT)}
    assert {BUILT + "libnccl-net.so", BUILT + "harp-perf"} <= named
    for name in named:
        assert f"$(B)/{name.removeprefix(BUILT)}" in makefile, name


def test_variables_of_the_readme_are_those_of_the_source() -> None:
    known = {row["variable"] for row in rows()}
    named = set(HARP_NAME.findall(read(README)))
    assert named
    assert named <= known


def test_constants_named_in_docs_exist() -> None:
    known = set(re.findall(r"\w+", sources()))
    known |= {name for word in known for name in [f"HARP_{word}", f"HARP_ERR_{word}"]}
    for doc in DOCS:
        assert set(HARP_NAME.findall(read(doc))) <= known, relative(doc)


def test_functions_and_fields_named_in_architecture_exist() -> None:
    known = set(re.findall(r"\w+", sources()))
    named = {name for name in IN_TICKS.findall(read(ARCHITECTURE)) if "_" in name}
    assert len(named) > 20
    assert sorted(named - known - {"harp_setup"}) == []


# ---- commands ----


def test_harp_setup_has_the_commands_named() -> None:
    script = read(ROOT / "harp_setup")
    used = commands("harp_setup")
    assert {"demo", "test"} <= {words[0] for words in used if words}
    said = subprocess.run([ROOT / "harp_setup", "help"], capture_output=True, text=True, check=True).stdout
    for words in used:
        if not words:
            continue
        assert re.search(rf"^\s+{re.escape(words[0])}\s", said, re.MULTILINE), words
        assert re.search(rf"^\s+(?:\w+ \| )*{re.escape(words[0])}\b[^)]*\)", script, re.MULTILINE), words
        for option in words[1:]:
            assert not option.startswith("--") or option in said, words


def _command_of(words: list[str]) -> list[str]:
    """Return the words that name a command, of a group or by itself."""
    return words[: 2 if words[0] in GROUPS else 1]


def test_harpctl_has_the_commands_and_options_named() -> None:
    used = [words for words in commands("harpctl") if words]
    assert used
    for words in used:
        command = _command_of(words)
        said = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        assert said.exit_code == 0, words
        ours = words[len(command) : words.index("--") if "--" in words else None]
        for word in ours:
            assert not word.startswith("--") or re.search(rf"(?<!\S){word}(?!\S)", said.output), words


def test_harp_perf_has_the_options_named() -> None:
    source = read(ROOT / "plugin" / "bench" / "options.c")
    used = [words for words in commands("harp-perf") if words]
    assert used
    for words in used:
        for word in words:
            if word.startswith("--"):
                assert re.search(rf"(?<![\w-]){word}(?![\w-])", source), word


def test_options_named_alone_exist() -> None:
    """An option in `ticks` with no command before it is one of the three programs'."""
    known = subprocess.run([ROOT / "harp_setup", "help"], capture_output=True, text=True, check=True).stdout
    known += CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    known += read(ROOT / "plugin" / "bench" / "options.c")
    named = {code.split()[0] for code in re.findall(r"`(--[^`]+)`", read(README))}
    assert named
    assert sorted(name for name in named if not re.search(rf"(?<![\w-]){name}(?![\w-])", known)) == []


def test_make_has_the_targets_named() -> None:
    makefiles = "".join(read(path) for path in sorted((ROOT / "plugin").glob("*.mk")))
    makefiles += read(ROOT / "plugin" / "Makefile")
    used = commands("make -C plugin")
    assert used
    for words in used:
        assert re.search(rf"^(?:[\w-]+ )*{re.escape(words[0])}(?: [\w-]+)*:", makefiles, re.MULTILINE), words


# ---- tables ----


def test_layers_are_those_that_are_checked() -> None:
    stated = {
        name: set() if may == "nothing" else set(may.split(", "))
        for name, _, may in table(read(ARCHITECTURE), "layer", "what it is", "may include")
    }
    assert stated == ALLOWED


def test_statuses_map_to_the_codes_stated() -> None:
    source = read(SRC / "nccl" / "result.c")
    real = dict(re.findall(r"case (HARP_ERR_\w+):\s+return HARP_NCCL_(\w+);", source))
    stated = {}
    for status, _, code in table(read(ARCHITECTURE), "status", "meaning"):
        word = code.split(";")[0].removeprefix("nccl")
        stated[status] = re.sub(r"(?<!^)(?=[A-Z])", "_", word).upper()
    assert stated == real
    meanings = dict(re.findall(r"(HARP_ERR_\w+),\s*/\* (.+?) \*/", read(SRC / "base" / "status.h")))
    assert set(meanings) == set(stated)


def test_barriers_are_those_of_the_code() -> None:
    code = sources()
    stated = {
        cell for row in table(read(ARCHITECTURE), "", "who", "pairs with") for cell in row if cell[:1] == "("
    }
    assert stated == set(re.findall(r"(?<!\w)\([A-Z]\)", code))


def test_glossary_is_sorted_and_says_each_word_once() -> None:
    words = [row[0] for row in table(read(GLOSSARY), "word", "meaning")]
    assert [word.casefold() for word in words] == sorted({word.casefold() for word in words})
    assert {"frame", "packet", "segment", "superframe", "message", "line", "burst", "flight"} <= set(words)
    assert {"path", "link", "engine", "credit", "early message"} <= set(words)


# ---- numbers ----

# Where the code has a number, and the words of architecture.md that repeat it.
NUMBERS = [
    ("proto/send_choose.c", "#define CORK_NS HARP_US(10)", "may wait up to 10 µs for company"),
    (
        "proto/path_health.c",
        "#define PATH_DOWN_NS HARP_MS(30)",
        "if it has been silent for 30 ms it goes DOWN",
    ),
    ("proto/path_health.c", "DRAIN_PTOS = 2,", "given up to the others at the second probe timeout"),
    ("proto/path_health.c", "#define PROBE_FIRST_NS HARP_MS(2)", "is not UP is probed after 2 ms"),
    ("proto/path_health.c", "#define PROBE_MAX_NS HARP_MS(50)", "every 50 ms while there is work"),
    ("proto/path_health.c", "#define IDLE_PROBE_NS HARP_MS(500)", "are asked every 500 ms"),
    ("proto/path_health.c", "#define STANDBY_PROBE_NS HARP_SEC(5)", "standby paths every 5 s"),
    ("proto/path.h", "HARP_PATH_SILENT_PTOS = 3", "After 3 probe timeouts in a row a path is silent"),
    ("proto/path.c", "#define PTO_MARGIN_NS HARP_MS(1)", "RTT + 4 variations + 1 ms"),
    ("proto/path.c", "#define PTO_MAX_NS HARP_MS(100)", "doubling, at most 100 ms"),
    ("proto/recv.c", "ACK_WINDOW_PARTS = 4", "out of order, repeated, or a quarter of the announced window"),
    ("proto/send_take.c", "ACK_REQUEST_PARTS = 4", "for each quarter of its own window"),
    ("proto/recv.c", "#define ACK_SOON_NS HARP_US(1)", "after 1 µs when the sender asks"),
    ("proto/recv.c", "#define ACK_QUIET_NS HARP_US(25)", "nothing more has come for 25 µs"),
    ("proto/recv.c", "#define ACK_LATE_NS HARP_US(200)", "after 200 µs at last"),
    ("engine/inbound.h", "#define HARP_INBOUND_LATELY_NS HARP_MS(200)", "those that sent in the last 200 ms"),
    ("proto/cc_delay.c", "DELAY_FLOOR_BYTES = 256 * 1024", "smaller, down to 256 KiB"),
    ("proto/cc_delay.c", "LOSS_TOLERATED_PERMILLE = 40", "without a queue from 40 permille on"),
    ("proto/cc_delay.c", "LOSS_QUEUE_PERMILLE = 20", "with a queue from 20 on"),
    ("proto/cc_delay.c", "#define LONG_QUEUE_NS HARP_MS(1)", "with more than 1 ms of queue always"),
    ("proto/tail_duplication.h", "HARP_TAIL_DUPLICATION_SHARE = 16", "a sixteenth of what is sent"),
    (
        "proto/tx_stream.h",
        "HARP_EARLY_MAX_BYTES = 16 * 1024",
        "A message of up to 16 KiB may come before its receive",
    ),
    ("proto/tx_stream.h", "HARP_EARLY_MESSAGES = 8", "for up to 8 messages"),
    ("proto/tx_stream.h", "HARP_MESSAGES_MAX = 64", "A link has 64"),
    ("base/linemap.h", "HARP_WINDOW_LINES = 131072", "the window of 131072 lines behind `delivered`"),
    ("base/linemap.h", "HARP_LINE_BYTES = 128", "ceil(bytes / 128) lines"),
    ("engine/pass.c", "GATHER_MIN_BYTES = 3072", "packets of 3072 bytes of payload on"),
    ("engine/pass.c", "RX_BUDGET = 2", "up to 2 superframes, or batches of single packets"),
    ("engine/pass.c", "TX_BUDGET = 8", "up to 8 superframes: the active peers in turn"),
    ("engine/pass.c", "TX_PEER_BUDGET = 4", "up to 4 superframes of data each"),
    ("engine/peer.h", "#define HARP_PEER_LINGER_NS HARP_SEC(1)", "One without links is kept for 1 s"),
    ("engine/crossing.c", "#define SHARE_NS HARP_MS(200)", "wait up to 200 ms for it"),
    (
        "engine/pass.c",
        "#define CONTROL_CHECK_NS HARP_MS(1)",
        "at most every 1 ms: what the control connections say",
    ),
    ("engine/pass.c", "CONTROL_EVENTS = 16", "16 events in all (`CONTROL_EVENTS`)"),
    ("engine/pass.c", "#define PENDING_CHECK_NS HARP_US(50)", "among 16 events, at most every 50 µs"),
    ("engine/pending_peer.c", "READS_PER_EVENT = 4", "4 reads of 1024 bytes (`READS_PER_EVENT`)"),
    ("engine/listener.c", "ACCEPTS_PER_EVENT = 4", "4 accepts (`ACCEPTS_PER_EVENT`)"),
    ("engine/listener.c", "TENDED_PER_CHECK = 4", "the clocks of 4 listeners' pending peers"),
    ("engine/monitor.c", "CLOSE_READS = 4", "Ending a peer reads what it has said 4 times at most"),
    ("io/udp.c", "GRO_SLOTS = 16", "brings at once (16 with GRO"),
    ("io/io.h", "HARP_RX_BATCH_MAX = 32", "32 single packets)"),
    ("io/udp.c", "RX_WORTHLESS_MAX = 16", "of what is empty or too long, 16 a port"),
    ("io/neighbour.c", "CHANGES_MAX = 16", "16 reads every 50 ms"),
    ("io/xdp.c", "#define LOOK_NS HARP_MS(50)", "16 reads every 50 ms"),
    ("engine/engine.h", "#define HARP_WATCHDOG_NS HARP_US(100)", "It naps for 100 µs"),
    ("engine/engine.h", "#define HARP_WATCHDOG_MAX_NS HARP_US(1600)", "twice as long, up to 1.6 ms"),
    (
        "engine/runner.h",
        "#define HARP_RUNNER_LOOK_NS HARP_US(1)",
        "other requests within 1 µs after it looked",
    ),
    ("engine/runner.c", "#define SPIN_NS HARP_US(50)", "keeps spinning for 50 µs after it last found work"),
    (
        "engine/engine.h",
        "HARP_ENGINE_MEMORY_BYTES = 16 << 20",
        "arena (16 MiB, or what the frames",
    ),
    (
        "engine/engine.h",
        "HARP_DEVICE_ENGINES_MAX = 16",
        "each of its cores in thread mode (at most 16)",
    ),
    ("engine/limits.h", "HARP_PENDING_PEERS_MAX = 64", "there are at most 64 of them"),
    (
        "engine/limits.h",
        "HARP_UNACCEPTED_MAX = 8",
        "A listener holds at most 8 links and pending peers that wait",
    ),
    ("engine/limits.h", "HARP_ENGINE_LINKS_MAX = 8192", "(`HARP_ENGINE_LINKS_MAX`) | 8192 |"),
    ("engine/limits.h", "HARP_ENGINE_PEERS_MAX = 4096", "(`HARP_ENGINE_PEERS_MAX`) | 4096 |"),
    ("engine/limits.h", "HARP_UNACCEPTED_MAX = 8", "(`HARP_UNACCEPTED_MAX`) | 8 |"),
    ("engine/limits.h", "HARP_PENDING_PEERS_MAX = 64", "(`HARP_PENDING_PEERS_MAX`) | 64 |"),
    ("proto/tx_stream.h", "HARP_STREAMS_MAX = 4096", "(`HARP_STREAMS_MAX`) | 4096 |"),
    (
        "engine/listener.h",
        "#define HARP_PENDING_PEER_NS HARP_SEC(5)",
        "a pending peer has 5 s to prove the secret",
    ),
    (
        "engine/connect.c",
        "#define CONNECT_RETRY_NS HARP_MS(50)",
        "tried again every 50 ms until the peer timeout",
    ),
]


@pytest.mark.parametrize(("file", "code", "phrase"), NUMBERS, ids=[code for _, code, _ in NUMBERS])
def test_numbers_are_those_of_the_code(file: str, code: str, phrase: str) -> None:
    source = " ".join(read(SRC / file).split())
    assert re.search(re.escape(code) + r"(?![\w.])", source), (
        f"{file} has no {code} any more: mend the text too"
    )
    assert phrase in " ".join(read(ARCHITECTURE).split())
