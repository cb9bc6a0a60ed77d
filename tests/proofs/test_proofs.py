# SPDX-License-Identifier: Apache-2.0
"""Proofs by exhaustion over the plugin's own source files; each must also find mistakes put into these.

A proof is tests/proofs/prove_NAME.c, whose head states its property and its bound. It is built with the
files under proof, or with copies of them that have smaller constants ("reduced"), and run: it fails where the
property does not hold. Then a mistake is put into a copy of one file, and the proof has to fail. With
--proofs the bounds are the longer ones.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.native import PLUGIN_DIR, TESTS_DIR

SRC_DIR = PLUGIN_DIR / "src"
PROOFS_DIR = TESTS_DIR / "proofs"
CC = ("cc", "-std=gnu11", "-O1", "-D_GNU_SOURCE", "-ffunction-sections", "-fdata-sections", "-c")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused", "-Wno-unused-parameter", "-Wno-stringop-overflow")
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 300
LONG_TIMEOUT_S = 7200

pytestmark = pytest.mark.timeout(BUILD_TIMEOUT_S + RUN_TIMEOUT_S)


@dataclasses.dataclass(frozen=True)
class Change:
    """One text of a file of plugin/src that is replaced; it is there once."""

    file: str
    old: str
    new: str

    def applied_to(self, text: str) -> str:
        """Replace it."""
        assert text.count(self.old) == 1, f"{self.file} has not once: {self.old}"
        return text.replace(self.old, self.new)


@dataclasses.dataclass(frozen=True)
class Proof:
    """A proof: its parts, and the mistakes that it must find, by name.

    sources: of plugin/src; parts: of tests/proofs, compiled for memory.c where it is concurrent.
    """

    mistakes: dict[str, Change]
    sources: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    reduced: tuple[Change, ...] = ()
    is_concurrent: bool = False


LINES = ("base/linemap.c", "base/ranges.c")
STREAMS = ("proto/recv.c", "proto/rx_stream.c", "proto/session.c")
WIRE = tuple(f"wire/{file.name}" for file in sorted((SRC_DIR / "wire").glob("*.c")))
RING, PASS, RUNNER, ENGINE = "base/spsc.h", "engine/pass.c", "engine/runner.c", "engine/engine.c"
RECORDS, BYTES, PATH, PIPE = (
    "proto/records.c",
    "engine/tcp/tcp_bytes.c",
    "engine/tcp/tcp_path.c",
    "io/page_pipe.c",
)
MARK = "  if (idle) atomic_store_explicit(&e->sleeping, true, memory_order_seq_cst); /* (J) */\n"

PROOFS = {
    "seq": Proof(
        mistakes={
            "order without wrap": Change("base/seq.h", "(int32_t)(a - b) < 0", "a < b"),
            "equal is after": Change("base/seq.h", "(int32_t)(a - b) > 0", "(int32_t)(a - b) >= 0"),
            "widened forward only": Change("base/seq.h", "(uint64_t)(int64_t)(int32_t)(low", "(uint64_t)(low"),
        },
    ),
    "ranges": Proof(
        sources=("base/ranges.c",),
        reduced=(Change("base/ranges.h", "HARP_RANGES_MAX = 32", "HARP_RANGES_MAX = 3"),),
        mistakes={
            "joined above only": Change("base/ranges.c", "if (joins_lower && joins_upper)", "if (false)"),
            "member taken twice": Change("base/ranges.c", "number < r->at[i].end)", "number + 1 < r->at[i].end)"),
            "below a full set": Change(
                "base/ranges.c",
                "if (i == HARP_RANGES_MAX) return false;",
                "if (i == HARP_RANGES_MAX) return true;",
            ),
            "oldest kept": Change(
                "base/ranges.c",
                "if (r->count == HARP_RANGES_MAX) r->count--;",
                "if (r->count == HARP_RANGES_MAX) return true;",
            ),
            "newest forgotten": Change("base/ranges.c", "r->count > 1 &&", "r->count &&"),
        },
    ),
    "linemap": Proof(
        sources=("base/linemap.c",),
        reduced=(Change("base/linemap.h", "HARP_WINDOW_LINES = 131072", "HARP_WINDOW_LINES = 256"),),
        mistakes={
            "part of a word": Change("base/linemap.c", "HARP_MIN(count, 64 - bit % 64)", "HARP_MIN(count, 64)"),
            "run beyond its limit": Change(
                "base/linemap.c", "return HARP_MIN(run + same, limit)", "return run + same"
            ),
            "no turn": Change(
                "base/linemap.c", "(line + run) % HARP_WINDOW_LINES", "line % HARP_WINDOW_LINES + run % 64"
            ),
        },
    ),
    "litmus": Proof(is_concurrent=True, mistakes={}),
    "spsc": Proof(
        is_concurrent=True,
        reduced=(Change(RING, "HARP_SPSC_SLOTS = 64", "HARP_SPSC_SLOTS = 2"),),
        mistakes={
            "(A) relaxed": Change(RING, "tail + 1, memory_order_release", "tail + 1, memory_order_relaxed"),
            "(B) relaxed": Change(RING, "(&q->tail, memory_order_acquire)", "(&q->tail, memory_order_relaxed)"),
            "(C) relaxed": Change(RING, "head + 1, memory_order_release", "head + 1, memory_order_relaxed"),
            "(D) relaxed": Change(RING, "(&q->head, memory_order_acquire)", "(&q->head, memory_order_relaxed)"),
            "one slot too many": Change(RING, ") == HARP_SPSC_SLOTS) return", ") > HARP_SPSC_SLOTS) return"),
        },
    ),
    "doorbell": Proof(
        is_concurrent=True,
        parts=("doorbell_pass.c", "doorbell_runner.c", "doorbell_engine.c"),
        mistakes={
            "(I) acquire": Change(
                ENGINE, "(&e->sleeping, memory_order_seq_cst)", "(&e->sleeping, memory_order_acquire)"
            ),
            "(I) doorbell not sequentially consistent": Change(
                ENGINE,
                "                           memory_order_seq_cst);",
                "                           memory_order_acq_rel);",
            ),
            "(J) release": Change(RUNNER, "true, memory_order_seq_cst)", "true, memory_order_release)"),
            "(J) acquire": Change(
                RUNNER,
                "(&e->doorbell_words, memory_order_seq_cst)",
                "(&e->doorbell_words, memory_order_acquire)",
            ),
            "(J) no second look": Change(
                RUNNER,
                "if (!atomic_load_explicit(&e->doorbell_words, memory_order_seq_cst)) sleep_until",
                "sleep_until",
            ),
            "marked after the lock": Change(
                RUNNER, f"{MARK}  harp_engine_unlock(e);", f"  harp_engine_unlock(e);\n{MARK}"
            ),
            "word relaxed": Change(
                ENGINE, "(slot % 64), memory_order_release)", "(slot % 64), memory_order_relaxed)"
            ),
            "word taken relaxed": Change(
                PASS,
                "(&e->doorbells[w], 0, memory_order_acquire)",
                "(&e->doorbells[w], 0, memory_order_relaxed)",
            ),
            "summary's other words": Change(PASS, "w < first + HARP_DOORBELL_WORDS", "w < first + 1"),
        },
    ),
    "records": Proof(
        sources=(*LINES, *STREAMS, *WIRE, RECORDS),
        reduced=(
            Change("proto/limits.h", "HARP_EARLY_MAX_BYTES = 32 * 1024", "HARP_EARLY_MAX_BYTES = 256"),
            Change("wire/record.h", "HARP_RECORD_MAX_LINES = 4096", "HARP_RECORD_MAX_LINES = 16"),
            Change("proto/records.h", "HARP_RECORDS_AHEAD_BYTES = 66 << 10", "HARP_RECORDS_AHEAD_BYTES = 640"),
            # A datagram is longer than what is reduced.
            Change("proto/rx_stream.h", "HARP_EARLY_MAX_BYTES / HARP_LINE_BYTES / 2 + 1", "HARP_PACKET_MAX_LINES"),
        ),
        mistakes={
            "CRC not checked": Change(
                RECORDS, "end_reading(r);\n  if (!is_right(r))", "end_reading(r);\n  if (false)"
            ),
            "CRC not checked of whole ones": Change(
                RECORDS,
                "return HARP_RECORDS_MORE;\n"
                "  if (!is_right(r)) return break_connection(r, has_mac(r) ? HARP_DROP_MAC : HARP_DROP_CRC);\n"
                "  r->from",
                "return HARP_RECORDS_MORE;\n  r->from",
            ),
            "a buffer in use again is wrong": Change(RECORDS, "if (t.dst) return false;", "return false;"),
            "two write the same lines": Change(
                RECORDS, "other->refused |= lines_overlap", "other->refused |= false && lines_overlap"
            ),
            "refused, then written": Change(RECORDS, "*dst = r->refused ? NULL : t.dst;", "*dst = t.dst;"),
            "early, in place": Change(
                "proto/records.h",
                "HARP_RECORD_WHOLE_BYTES = HARP_EARLY_MAX_BYTES",
                "HARP_RECORD_WHOLE_BYTES = HARP_EARLY_MAX_BYTES / 4",
            ),
            "place kept": Change("proto/rx_stream.c", "if (!arrived) t.dst =", "t.dst ="),
        },
    ),
    "references": Proof(
        sources=("engine/tcp/reference_choice.c",),
        parts=("references_tcp_bytes.c", "references_tcp_path.c", "references_page_pipe.c"),
        mistakes={
            "closed, not reset": Change(
                PATH,
                "holds_references(p)) harp_tcp_socket_reset_at_close(p->fd);",
                "false) harp_tcp_socket_reset_at_close(p->fd);",
            ),
            "counted short": Change(
                BYTES, "p->referenced_to = p->sent_bytes + (uint64_t)n", "p->referenced_to = p->sent_bytes"
            ),
            "stream closed, connection kept": Change(PATH, "(waits || is_owed)", "waits"),
            "stream closed, payload waits": Change(PATH, "(waits || is_owed)", "is_owed"),
            "sent though delivered": Change(BYTES, "if (harp_unlikely(is_payload_gone(p)))", "if (false)"),
            "pipe not emptied": Change(BYTES, "  harp_page_pipe_drop(&p->peer->engine->tcp->pages, p);\n", ""),
            "another's pages": Change(PIPE, "p->bytes && p->holder == holder", "p->bytes"),
            "pipe closed meanwhile": Change(
                BYTES, "if (harp_unlikely(!harp_page_pipe_is_open(pages)))", "if (false)"
            ),
        },
    ),
}


class Builder:
    """Builds one proof; a mistake is compiled into those objects alone that contain its file."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.proof = name, folder, PROOFS[name]
        self._write_reduced(folder / "base")
        own = (f"prove_{name}.c", *self.proof.parts)
        helpers = ("prove.c", "memory.c") if self.proof.is_concurrent else ("prove.c",)
        self.files = [*(PROOFS_DIR / file for file in (*own, *helpers)), *map(Path, self.proof.sources)]
        self.checked = set(own) if self.proof.is_concurrent else set()
        self.objects = {file: self._compile_file(file, folder / "base") for file in self.files}

    def _write_reduced(self, shadow: Path) -> None:
        for change in self.proof.reduced:
            self._write_changed(shadow, change, (SRC_DIR / change.file).read_text())

    @staticmethod
    def _write_changed(shadow: Path, change: Change, text: str) -> None:
        target = shadow / change.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(change.applied_to(text))

    def _compile_file(self, file: Path, shadow: Path) -> Path:
        source = file if file.is_absolute() else shadow / file
        if not source.is_file():
            source = SRC_DIR / file
        shadow.mkdir(parents=True, exist_ok=True)
        target = shadow / f"{file.stem}.o"
        argv = [
            *CC,
            *WARNINGS,
            f"-I{shadow}",
            f"-I{SRC_DIR}",
            f"-I{TESTS_DIR}",
            "-MMD",
            "-o",
            str(target),
            str(source),
        ]
        if file.name in self.checked:
            argv.insert(1, "-fsanitize=thread")
        _run_tool(argv)
        return target

    def build(self, mistake: Change | None = None) -> Path:
        """Link the proof, with a mistake or without."""
        objects, shadow = dict(self.objects), self.folder / "base"
        if mistake:
            shadow = self.folder / "mistake"
            shutil.copytree(self.folder / "base", shadow, ignore=shutil.ignore_patterns("*.o", "*.d"))
            reduced = shadow / mistake.file
            text = (reduced if reduced.is_file() else SRC_DIR / mistake.file).read_text()
            self._write_changed(shadow, mistake, text)
            changed = [
                file for file, built in objects.items() if mistake.file in built.with_suffix(".d").read_text()
            ]
            assert changed, f"no object of the proof has {mistake.file}"
            objects |= {file: self._compile_file(file, shadow) for file in changed}
        program = shadow / "proof"
        _run_tool(["cc", "-Wl,--gc-sections", "-o", str(program), *map(str, objects.values())])
        return program


def _run_tool(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S)
    assert done.returncode == 0, f"{' '.join(argv)}\n{done.stderr}"


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Builder]:
    """Return the builder of a proof."""
    return functools.cache(lambda name: Builder(name, tmp_path_factory.mktemp(name)))


def _run_proof(program: Path, *arguments: str, timeout_s: int = RUN_TIMEOUT_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=timeout_s)


@pytest.mark.parametrize("name", PROOFS)
@pytest.mark.timeout(BUILD_TIMEOUT_S + LONG_TIMEOUT_S)
def test_proof(name: str, builder: Callable[[str], Builder], request: pytest.FixtureRequest) -> None:
    words = ["--long"] if request.config.getoption("--proofs") else []
    done = _run_proof(builder(name).build(), *words, timeout_s=LONG_TIMEOUT_S if words else RUN_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert "holds in" in done.stdout


MISTAKES = [(name, mistake) for name, proof in PROOFS.items() for mistake in proof.mistakes]


@pytest.mark.parametrize(("name", "mistake"), MISTAKES, ids=[f"{n}:{m}" for n, m in MISTAKES])
def test_mistake_is_found(name: str, mistake: str, builder: Callable[[str], Builder]) -> None:
    made = builder(name)
    shutil.rmtree(made.folder / "mistake", ignore_errors=True)
    done = _run_proof(made.build(PROOFS[name].mistakes[mistake]))
    assert done.returncode == 1, f"the proof holds in spite of the mistake:\n{done.stdout}{done.stderr}"
    assert "not true: " in done.stderr
