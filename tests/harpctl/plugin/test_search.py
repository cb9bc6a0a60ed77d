# SPDX-License-Identifier: Apache-2.0
"""The plugin that an NCCL takes by its search path, compared with what dlopen takes in a real process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from harpctl.doctor.context import Context
from harpctl.doctor.examine import run_checks
from harpctl.facts.collect import collect_facts
from harpctl.facts.library_dirs import host_machine
from harpctl.facts.loader import cached_files, load_object, search_places
from harpctl.facts.plugin_files import NAME
from harpctl.host.host import Host
from harpctl.plugin import search
from harpctl.plugin.search import find_chains
from harpctl.plugin.status import read_status
from tests.harpctl.plugin.conftest import (
    KINDS,
    NCCL,
    NCCL_CODE,
    PROGRAM_CODE,
    Image,
    compile_code,
    path_option,
)

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin")


def taken_by_dlopen(program: Path, first: Path, environment: str) -> list[str]:
    """Return what dlopen takes for the plugin's name, one after the other."""
    env = {"LD_LIBRARY_PATH": environment} if environment else {}
    done = subprocess.run(
        [str(program), str(first), NAME], env=env, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [os.path.realpath(line) for line in done.stdout.splitlines()]


@dataclass(frozen=True)
class Parts:
    """Programs, libraries between them and NCCL, and NCCLs, by what each has of a path; and a plugin."""

    folder: Path
    plugin: Path

    def file(self, part: str, kind: str) -> Path:
        return self.folder / f"{part}-{kind}" / {"nccl": NCCL, "between": "libtorch.so"}.get(part, part)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = tmp_path_factory.mktemp("parts")
    made = Parts(folder, compile_code(folder / "plugin.so", "int one = 1;"))
    for kind in KINDS:
        own = {part: path_option(kind, str(folder / part)) for part in ("nccl", "between", "program")}
        nccl = compile_code(made.file("nccl", kind), NCCL_CODE, f"-Wl,-soname,{NCCL}", *own["nccl"])
        compile_code(made.file("between", kind), "int two = 2;", "-Wl,--no-as-needed", str(nccl), *own["between"])
        compile_code(made.file("program", kind), PROGRAM_CODE, *own["program"], shared=False)
    return made


@pytest.mark.parametrize(("nccl", "between", "program"), list(product(KINDS, repeat=3)))
@pytest.mark.parametrize("with_environment", [False, True])
def test_the_order_is_the_loaders(
    parts: Parts, nccl: str, between: str, program: str, with_environment: bool
) -> None:
    folders = [parts.folder / name for name in ("nccl", "between", "program", "environment")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        shutil.copy(parts.plugin, folder / NAME)
    files = [parts.file("nccl", nccl), parts.file("between", between), parts.file("program", program)]
    environment = [str(files[0].parent), *([str(folders[-1])] if with_environment else [])]
    chain = [load_object(Host(), str(file)) for file in files]
    planned = [place for place in search_places(Host(), NAME, chain, environment) if Path(place.path).exists()]
    expected = list(dict.fromkeys(os.path.realpath(place.path) for place in planned))
    assert taken_by_dlopen(files[2], files[1], ":".join(environment)) == expected
    assert ("by LD_LIBRARY_PATH" in {place.why for place in planned}) == with_environment


@pytest.mark.parametrize(
    ("kind", "nccl_kind", "where", "why"),
    [
        (
            "rpath",
            "",
            "nvidia/nccl/lib",
            "RPATH of /opt/env/lib/python3.11/site-packages/torch/lib/libtorch_cuda",
        ),
        ("rpath", "", "../..", "RPATH of /opt/env/bin/python3.11"),
        ("runpath", "", "../..", "RPATH of /opt/env/bin/python3.11"),
        ("runpath", "", "nvidia/nccl/lib", ""),
        ("rpath", "runpath", "nvidia/nccl/lib", ""),
        (
            "rpath",
            "runpath",
            "nvidia/cublas/lib",
            "RUNPATH of /opt/env/lib/python3.11/site-packages/nvidia/nccl",
        ),
    ],
)
def test_pytorch(
    debian: Image,
    torch: Callable[..., Path],
    foreign: Path,
    harp: Path,
    kind: str,
    nccl_kind: str,
    where: str,
    why: str,
) -> None:
    """HARP is in the system's folder, another vendor's plugin somewhere in the environment."""
    packages = torch(kind, nccl_kind)
    debian.put(harp, f"{debian.libraries}/{NAME}")
    folder = (packages / where).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(foreign, folder / NAME)
    found = read_status(debian.host)
    (nccl,) = found.libraries
    expected = f"{debian.libraries}/{NAME}" if not why else f"/{(folder / NAME).relative_to(debian.root)}"
    assert (nccl.plugin, nccl.loader) == (
        expected,
        "/opt/env/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
    )
    assert why in nccl.why
    assert any(f"takes {expected}, which is the plugin AWS" in note for note in found.notes) == bool(why)
    findings = run_checks(Context(debian.host, collect_facts(debian.host)))
    (finding,) = [one for one in findings if one.id == "plugin.search"]
    assert finding.level == ("fail" if why else "ok")
    assert expected in finding.cause
    assert why in finding.cause
    top = next(packages.glob("torch/_C*.so"))
    really = taken_by_dlopen(debian.at("/opt/env/bin/python3.11"), top, "")
    assert really == ([str(folder / NAME)] if why else [])


def test_pytorch_with_a_library_path(
    debian: Image, torch: Callable[..., Path], foreign: Path, harp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch()
    debian.put(harp, f"{debian.libraries}/{NAME}")
    debian.put(foreign, f"/opt/aws/{NAME}")
    monkeypatch.setattr(search, "environment_dirs", lambda _host: ("/opt/aws",))
    (nccl,) = read_status(debian.host).libraries
    assert (nccl.plugin, nccl.why) == (f"/opt/aws/{NAME}", "by LD_LIBRARY_PATH")
    debian.put(harp, f"/opt/env/lib/python3.11/site-packages/nvidia/nccl/lib/{NAME}")
    assert "RPATH" in read_status(debian.host).libraries[0].why


def test_pytorch_takes_the_nccl_of_the_library_path(
    debian: Image,
    torch: Callable[..., Path],
    make_nccl: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch("runpath")
    debian.put(make_nccl("2.27.7"), f"/opt/new/{NCCL}")
    monkeypatch.setattr(search, "environment_dirs", lambda _host: ("/opt/new",))
    first, *others = find_chains(debian.host)
    assert first[0].path == f"/opt/new/{NCCL}"
    assert first[1].name == "libtorch_cuda.so"
    assert [chain[0].path.split("/")[-4:] for chain in others] == [["nvidia", "nccl", "lib", NCCL]]


# ---- the loader's cache ----


@pytest.mark.skipif(LDCONFIG is None or not Path("/etc/ld.so.cache").exists(), reason="needs ldconfig")
def test_the_cache_is_read_as_ldconfig_reads_it() -> None:
    done = subprocess.run([str(LDCONFIG), "-p"], check=True, capture_output=True, text=True)
    kind = {"x86_64": "libc6,x86-64", "aarch64": "libc6,AArch64"}[host_machine(Host())]
    expected: dict[str, list[str]] = {}
    for name, flags, path in re.findall(r"^\t(\S+) \((.*)\) => (.*)$", done.stdout, re.MULTILINE):
        if flags.partition(", OS")[0] == kind:
            expected.setdefault(name, []).append(path)
    assert expected
    assert {name: list(cached_files(Host(), name) or ()) for name in expected} == expected
    assert cached_files(Host(), "no-such-library.so") == ()


@pytest.mark.skipif(LDCONFIG is None or os.geteuid() != 0, reason="needs ldconfig and root")
def test_a_cache_that_is_too_old_is_named(debian: Image, make_nccl: Callable[[str], Path], harp: Path) -> None:
    debian.put(b"/opt/harp/lib\n", "/etc/ld.so.conf")
    debian.put(make_nccl("2.21.5"), f"{debian.libraries}/{NCCL}")
    debian.at("/opt/harp/lib").mkdir(parents=True)
    subprocess.run([str(LDCONFIG), "-r", str(debian.root)], check=True, capture_output=True)
    debian.put(harp, f"/opt/harp/lib/{NAME}")
    found = read_status(debian.host)
    assert [one.plugin for one in found.libraries] == [""]
    assert any("takes no plugin" in note for note in found.notes)
    (finding,) = [
        one for one in run_checks(Context(debian.host, collect_facts(debian.host))) if one.id == "plugin.search"
    ]
    assert (finding.level, finding.repair) == ("fail", ("ldconfig",))
    subprocess.run([str(LDCONFIG), "-r", str(debian.root)], check=True, capture_output=True)
    assert [(one.plugin, one.why) for one in read_status(debian.host).libraries] == [
        (f"/opt/harp/lib/{NAME}", "by the loader's cache")
    ]


@pytest.mark.parametrize("data", [b"", b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1" + b"\xff" * 60])
def test_a_damaged_cache(debian: Image, data: bytes) -> None:
    debian.put(data, "/etc/ld.so.cache")
    assert not cached_files(debian.host, NAME)
