# SPDX-License-Identifier: Apache-2.0
"""Whatever is missing or broken in a tree, facts are gathered, and they can be printed."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Facts
from harpctl.facts.table import facts_tables
from harpctl.host.host import Host
from tests.draws import draw_examples
from tests.harpctl.machine import Shape, build_machine

SMALL = Shape(gpus=2, enis=2, addressed=1, cpus=4, nodes=2, memory_gib=16)
SMALLEST = Shape(gpus=1, enis=1, addressed=1, cpus=2, nodes=1, memory_gib=16)
DISTROS = ("ubuntu-22.04", "rocky-8", "debian-12")
BARE_HARMS = ("remove", "folder", "loop", "dangling")
HARMS = (*BARE_HARMS, "garbage", "words", "name")
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
EFI_UNKNOWN = "Which grub.cfg EFI reads is unknown: the symbolic links of /etc/grub2-efi.cfg form a loop."
WORDS = st.lists(st.sampled_from(TOKENS), max_size=12).map(
    lambda words: " ".join(words).encode("utf-8", "surrogateescape")
)


@pytest.fixture(scope="module", params=DISTROS)
def pristine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_machine(tmp_path_factory.mktemp("pristine"), request.param, SMALL)


def harm_path(path: Path, kind: str, content: bytes) -> None:
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


def check_facts(host: Host) -> None:
    facts = collect_facts(host)
    encoded = msgspec.json.encode(facts)
    assert msgspec.json.decode(encoded, type=Facts) == facts
    assert all(table.row_count >= 0 for table in facts_tables(facts))
    assert all(line.endswith((".", ")")) or ":" in line for line in facts.unknown)


@functools.cache
def list_paths() -> tuple[str, ...]:
    """List what is in the trees, and what may be."""
    found = {"etc/grub2-efi.cfg", "usr/lib64/libnccl.so.2", "usr/lib64/libnccl-net.so", "etc/ld.so.conf"}
    for distro in DISTROS:
        with tempfile.TemporaryDirectory() as folder:
            tree = build_machine(Path(folder), distro, SMALL)
            found |= {str(path.relative_to(tree)) for path in tree.rglob("*")}
    return tuple(sorted(found))


PATHS = st.deferred(lambda: st.sampled_from(list_paths()))
HARMED = st.one_of(
    st.tuples(PATHS, st.sampled_from(BARE_HARMS), st.just(b"")),
    st.tuples(PATHS, st.sampled_from(("garbage", "name")), st.binary(max_size=200)),
    st.tuples(PATHS, st.just("words"), WORDS),
)


@draw_examples(25)
@given(harms=st.lists(HARMED, min_size=1, max_size=12))
@example(harms=[("etc/grub2-efi.cfg", "loop", b"")])
@example(harms=[("etc", "loop", b"")])
@example(harms=[("mnt", "loop", b""), ("root", "loop", b"")])
@example(harms=[("usr/lib64", "folder", b""), ("usr/lib64/libnccl.so.2", "loop", b"")])
def test_a_harmed_tree(
    pristine: Path, tmp_path_factory: pytest.TempPathFactory, harms: list[tuple[str, str, bytes]]
) -> None:
    tree = tmp_path_factory.mktemp("harmed") / "tree"
    shutil.copytree(pristine, tree, symlinks=True, copy_function=os.link)  # harm never writes in place
    try:
        for path, kind, content in harms:
            harm_path(tree / path, kind, content)
        check_facts(Host(tree))
    finally:
        shutil.rmtree(tree.parent)


class Seen(Host):
    """A host that records which of its paths are read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.paths: set[str] = set()

    def real(self, path: str, *, follow: bool = True) -> Path:
        self.paths.add(path)
        return super().real(path, follow=follow)


@contextlib.contextmanager
def harm_for_a_while(path: Path, kind: str, aside: Path, content: bytes = b"\xff\0 9 :/lo") -> Iterator[None]:
    """Harm one path, which may be none; all is as before afterwards."""
    was_there = os.path.lexists(path)
    if was_there:
        path.rename(aside)
    try:
        harm_path(path, kind, content)
        yield
    finally:
        harm_path(path, "remove", b"")
        if was_there:
            aside.rename(path)


@pytest.mark.parametrize("kind", HARMS)
def test_each_path_looked_at_harmed_alone(tmp_path: Path, kind: str) -> None:
    """Harm also what is not there: a link of Red Hat's, the NCCL of a Python package."""
    tree = build_machine(tmp_path / "tree", "rocky-8", SMALLEST)
    (tree / "usr/lib64/python3.6/site-packages/nvidia/nccl/lib").mkdir(parents=True)
    seen = Seen(tree)
    check_facts(seen)
    paths = {path.strip("/") for path in seen.paths} - {""}
    assert paths > {"etc/grub2-efi.cfg", "etc/os-release", "root", "usr/lib64", "sys/class/net/eth1/device"}
    paths |= {"etc", "etc/grub2.cfg", "usr/lib64/libnccl.so.2", "usr/lib64/libnccl-net.so"}
    for path in sorted(paths):
        if (tree / path).parent.is_dir():
            with harm_for_a_while(tree / path, kind, tmp_path / "aside"):
                check_facts(Host(tree))
    assert not collect_facts(Host(tree)).unknown


@pytest.mark.parametrize("distro", DISTROS)
@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("etc/grub2-efi.cfg", EFI_UNKNOWN),
        ("etc", EFI_UNKNOWN),
        ("usr/lib", "The distribution is unknown"),
        ("boot", "The boot loader is unknown"),
        ("proc/meminfo", "The amount of memory is unknown"),
        ("sys/class/net", "The network interfaces are unknown"),
        ("sys/bus/pci/devices", "GPUs and the place of ENIs are unknown"),
        ("proc/self", "Limits and capabilities are unknown"),
    ],
)
def test_a_loop_of_links_is_reported(tmp_path: Path, distro: str, path: str, what: str) -> None:
    tree = build_machine(tmp_path / "tree", distro, SMALL)
    with harm_for_a_while(tree / path, "loop", tmp_path / "aside"):
        assert what in "\n".join(collect_facts(Host(tree)).unknown)


@pytest.mark.parametrize("distro", DISTROS)
def test_a_boot_menu_in_a_loop_is_named(tmp_path: Path, distro: str) -> None:
    tree = build_machine(tmp_path, distro, SMALL)
    menu = collect_facts(Host(tree)).boot.config
    for path in tree.glob("boot/**/grub.cfg"):
        harm_path(path, "loop", b"")
    boot = collect_facts(Host(tree)).boot
    assert (boot.loader, boot.reason) == ("", f"the symbolic links of {menu} form a loop")


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
def test_files_of_nonsense(tmp_path: Path, content: bytes) -> None:
    tree = build_machine(tmp_path / "tree", "ubuntu-22.04", SMALL)
    for file in FILES:
        print(file)
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        with harm_for_a_while(tree / file, "garbage", tmp_path / "aside", content):
            check_facts(Host(tree))


def test_an_empty_tree_reports_all_that_is_unknown(tmp_path: Path) -> None:
    facts = collect_facts(Host(tmp_path))
    text = "\n".join(facts.unknown)
    for word in ("distribution", "boot loader", "memory", "processors", "GPUs", "interfaces", "Limits"):
        assert word in text
    check_facts(Host(tmp_path))
