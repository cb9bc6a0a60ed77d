"""Whatever is missing or broken in a tree, facts are gathered, and they can be printed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harpctl.facts.collect import collect
from harpctl.facts.model import Facts
from harpctl.facts.table import tables
from harpctl.host.door import Host
from tests.harpctl.machine import Shape, build

SMALL = Shape(gpus=2, enis=2, addressed=1, cpus=4, nodes=2, memory_gib=16)
DISTROS = ("ubuntu-22.04", "rocky-8", "debian-12")
HARMS = ("remove", "garbage", "words", "folder", "loop", "dangling", "name")
TOKENS = (
    *("0", "-1", "9" * 26, "0-4000000000", "/../../..", "\0", "\udcff", "a" * 300, ":", "/", "lo", "eth1"),
    *(
        "hugetlb",
        "0::",
        "MemTotal:",
        "kB",
        "pagesize=9999999999G",
        "\\040",
        "\n",
        " ",
        "\N{ARABIC-INDIC DIGIT THREE}",
    ),
)
WORDS = st.lists(st.sampled_from(TOKENS), max_size=12)


@pytest.fixture(scope="module", params=DISTROS)
def pristine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pristine"), request.param, SMALL)


def harm(path: Path, kind: str, content: bytes) -> None:
    """Do something bad to what is at a path."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.exists() or path.is_symlink():
        path.unlink()
    if not path.parent.is_dir():
        return
    if kind in {"garbage", "words"}:
        path.write_bytes(content)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("/nowhere/../../at/all")
    elif kind == "name":
        path.mkdir()
        (path / "\udcff\udc80.conf").write_bytes(content)


def check(tree: Path) -> None:
    facts = collect(Host(tree))
    encoded = msgspec.json.encode(facts)
    assert msgspec.json.decode(encoded, type=Facts) == facts
    assert all(table.row_count >= 0 for table in tables(facts))
    assert all(line.endswith((".", ")")) or ":" in line for line in facts.unknown)


@given(data=st.data())
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_harmed_tree(pristine: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    paths = sorted(str(path.relative_to(pristine)) for path in pristine.rglob("*"))
    tree = tmp_path_factory.mktemp("harmed") / "tree"
    shutil.copytree(pristine, tree, symlinks=True, copy_function=os.link)  # harm never writes in place
    try:
        for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=12)):
            kind = data.draw(st.sampled_from(HARMS))
            words = " ".join(data.draw(WORDS)).encode("utf-8", "surrogateescape")
            harm(tree / path, kind, words if kind == "words" else data.draw(st.binary(max_size=200)))
        check(tree)
    finally:
        shutil.rmtree(tree)


FILES = [
    *(
        "etc/os-release",
        "proc/meminfo",
        "proc/cpuinfo",
        "proc/mounts",
        "proc/self/cgroup",
        "proc/self/limits",
    ),
    *("proc/self/status", "proc/net/route", "proc/net/fib_trie", "proc/net/if_inet6", "proc/net/ipv6_route"),
    *("proc/cmdline", "proc/sys/kernel/osrelease", "usr/bin/ldd", "run/systemd/container", "proc/1/environ"),
    *("sys/class/net/eth1/ifindex", "sys/class/net/eth1/type", "sys/class/net/eth1/flags"),
    *("sys/devices/system/node/node0/cpulist", "sys/devices/system/node/node0/meminfo"),
    "sys/bus/pci/devices/0000:13:00.0/class",
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0",
        b"\xff\xfe\n" * 9,
        b"9" * 400,
        b"-1\n",
        b"1 2 3 4 5 6 7 8 9 10 11\n" * 3,
        b":" * 5000,
        b"/" * 5000,
    ],
    ids=["empty", "zero", "no-utf8", "huge", "negative", "numbers", "colons", "slashes"],
)
def test_a_file_of_nonsense(tmp_path: Path, file: str, content: bytes) -> None:
    build(tmp_path, "ubuntu-22.04", SMALL)
    path = tmp_path / file
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    check(tmp_path)


def test_an_empty_tree_tells_all_that_is_unknown(tmp_path: Path) -> None:
    facts = collect(Host(tmp_path))
    text = "\n".join(facts.unknown)
    for word in ("distribution", "boot loader", "memory", "processors", "GPUs", "interfaces", "Limits"):
        assert word in text
    check(tmp_path)
