# SPDX-License-Identifier: Apache-2.0
"""Images of both families, our plugin, and small shared libraries compiled to be somebody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harpctl.facts.elf import Elf, inspect_elf
from harpctl.facts.library_dirs import host_machine
from harpctl.host.host import Host
from harpctl.plugin.search import LOADED

TRIPLET = f"{os.uname().machine}-linux-gnu"
LIBRARY_DIRS = {"debian": f"/usr/lib/{TRIPLET}", "rhel": "/usr/lib64"}
OTHER_MACHINE = {"x86_64": (183, "aarch64"), "aarch64": (62, "x86_64")}  # e_machine
MACHINE_AT = 18  # e_machine's offset in a little-endian file
NCCL, RCCL = LOADED
KINDS = ("", "rpath", "runpath")
TAGS = {"rpath": "--disable-new-dtags", "runpath": "--enable-new-dtags"}
NCCL_CODE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
const char text[] = "NCCL version 2.21.5+cuda12.4";
const char *take(const char *name) {
  struct link_map *map;
  void *found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!found || dlinfo(found, RTLD_DI_LINKMAP, &map)) return "";
  static char path[4096];
  __builtin_snprintf(path, sizeof path, "%s", map->l_name);
  dlclose(found);
  return path;
}
"""
# Prints what NCCL takes, removes it, and begins again, until nothing is left.
PROGRAM_CODE = """
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **argv) {
  void *first = dlopen(argv[1], RTLD_NOW);
  if (count != 3 || !first) return fprintf(stderr, "%s", dlerror()), 1;
  const char *(*take)(const char *) = (const char *(*)(const char *))dlsym(first, "take"), *path;
  while (take && *(path = take(argv[2])) && !unlink(path)) puts(path);
  return !take;
}
"""


TABLE = """
struct table {{ const char *name; int (*init)(void); }};
static int init(void) {{ return 0; }}
const struct table {symbol} = {{ "{name}", init }};
"""


@dataclass(frozen=True)
class Image:
    """A directory tree with a loader and a library directory."""

    root: Path
    libraries: str  # a path of the host

    @property
    def host(self) -> Host:
        return Host(self.root)

    def at(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def put(self, file: Path | bytes, path: str) -> Path:
        target = self.at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file if isinstance(file, bytes) else file.read_bytes())
        return target

    def files(self) -> dict[str, bytes | str]:
        """Return all files and links below the root, to compare."""
        return {
            str(path.relative_to(self.root)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_symlink() or path.is_file()
        }


def make_image(root: Path, family: str) -> Image:
    libraries = LIBRARY_DIRS[family]
    for folder in (libraries, "/usr/lib", "/usr/lib64", "/etc", "/mnt", "/root", "/var/lib"):
        (root / folder[1:]).mkdir(parents=True, exist_ok=True)
    for name in ("lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    machine = os.uname().machine
    loader = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}[machine]
    (root / loader).write_bytes(b"")
    assert host_machine(Host(root)) == machine
    return Image(root, libraries)


@pytest.fixture(params=list(LIBRARY_DIRS))
def image(request: pytest.FixtureRequest, tmp_path: Path) -> Image:
    return make_image(tmp_path / "image", request.param)


@pytest.fixture
def debian(tmp_path: Path) -> Image:
    return make_image(tmp_path / "image", "debian")


Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    folder = tmp_path_factory.mktemp("libraries")
    compiler = shutil.which("cc")
    assert compiler, "the tests need a C compiler, as the build does"

    def compile_one(name: str, code: str, *options: str, script: str = "") -> Path:
        source, output = folder / f"{name}.c", folder / f"{name}.so"
        source.write_text(code)
        if script:
            (folder / f"{name}.map").write_text(script)
            options += (f"-Wl,--version-script={folder / name}.map",)
        argv = [compiler, "-shared", "-fPIC", "-o", str(output), str(source), *options]
        subprocess.run(argv, check=True, capture_output=True, text=True)
        return output

    return compile_one


@pytest.fixture(scope="session")
def make_nccl(compile_library: Compile) -> Callable[[str], Path]:
    """Make a library that contains its release as a libnccl.so does."""
    code = 'const char text[] = "NCCL version %s+cuda12.4";'
    return lambda release: compile_library(f"nccl-{release}", code % release, "-Wl,-soname,libnccl.so.2")


@pytest.fixture(scope="session")
def plugin_file(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our plugin as it was when the tests began, whoever builds it anew meanwhile."""
    file = tmp_path_factory.mktemp("plugin") / plugin_file.name
    shutil.copy(plugin_file, file)
    return file


@pytest.fixture(scope="session")
def foreign(compile_library: Compile) -> Path:
    """Another vendor's plugin, with a SONAME as those have."""
    code = TABLE.format(symbol="ncclNetPlugin_v8", name="AWS Libfabric")
    return compile_library("foreign", code, "-Wl,-soname,libnccl-net.so")


@pytest.fixture(scope="session")
def harp(compile_library: Compile) -> Path:
    """Provide a HARP that is quick to read."""
    return compile_library("small", TABLE.format(symbol="ncclNetPlugin_v8", name="HARP"))


@pytest.fixture(scope="session")
def other_library(compile_library: Compile) -> Path:
    """Provide a shared library that is no plugin."""
    return compile_library("other", "int answer(void) { return 42; }")


@pytest.fixture(scope="session")
def other_machine(plugin_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our plugin as if built for the other machine."""
    data = bytearray(plugin_file.read_bytes())
    data[MACHINE_AT] = OTHER_MACHINE[os.uname().machine][0]
    file = tmp_path_factory.mktemp("machine") / "libnccl-net.so"
    file.write_bytes(data)
    return file


def read_elf(file: Path) -> Elf:
    with file.open("rb") as stream:
        return inspect_elf(stream, str(file))


def compile_code(output: Path, code: str, *options: str, shared: bool = True) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    source = output.with_name(f"{output.name}.c")
    source.write_text(code)
    argv = ["cc", *(["-shared", "-fPIC"] if shared else []), "-w", "-o", str(output), str(source), *options]
    subprocess.run([*argv, "-ldl"], check=True, capture_output=True, text=True)
    source.unlink()
    return output


def path_option(kind: str, text: str) -> tuple[str, ...]:
    return (f"-Wl,{TAGS[kind]}", f"-Wl,-rpath,{text}") if kind else ()


def build_torch(image: Image, name: str, library: Path, own: tuple[str, ...], top: tuple[str, ...]) -> None:
    """Build PyTorch's library that needs NCCL, what needs that, and the Python that loads it."""
    root = image.at("/opt/env")
    packages = root / "lib/python3.11/site-packages"
    middle = packages / "torch/lib" / name
    compile_code(middle, "", "-Wl,--no-as-needed", f"-Wl,-soname,{name}", str(library), *own)
    module = packages / "torch/_C.cpython-311-x86_64-linux-gnu.so"
    compile_code(module, "", "-Wl,--no-as-needed", str(middle), *top)
    program = path_option("rpath", "$ORIGIN/../lib")
    compile_code(root / "bin/python3.11", PROGRAM_CODE, *program, shared=False)


@pytest.fixture
def torch(debian: Image) -> Callable[..., Path]:
    """Make an environment of Python with PyTorch's libraries as its wheels have them; return its packages."""

    def make(kind: str = "rpath", nccl_kind: str = "") -> Path:
        packages = debian.at("/opt/env/lib/python3.11/site-packages")
        nccl_file = packages / "nvidia/nccl/lib" / NCCL
        nccl_option = path_option(nccl_kind, "$ORIGIN/../../cublas/lib")
        nccl = compile_code(nccl_file, NCCL_CODE, f"-Wl,-soname,{NCCL}", *nccl_option)
        own = path_option(kind, "$ORIGIN/../../nvidia/nccl/lib:$ORIGIN")
        build_torch(debian, "libtorch_cuda.so", nccl, own, path_option(kind, "$ORIGIN/lib"))
        return packages

    return make


@pytest.fixture
def rocm(debian: Image) -> Callable[[str], Path]:
    """Make an environment of Python with PyTorch for ROCm, whose RCCL is of a release; return the RCCL."""

    def make(release: str) -> Path:
        file = debian.at("/opt/env/lib/python3.11/site-packages/torch/lib") / RCCL
        code = NCCL_CODE.replace("NCCL version 2.21.5+cuda12.4", f"RCCL version {release}+hip7.0")
        rccl = compile_code(file, code, f"-Wl,-soname,{RCCL}")
        own = path_option("rpath", "$ORIGIN")
        build_torch(debian, "libtorch_hip.so", rccl, own, path_option("rpath", "$ORIGIN/lib"))
        return rccl

    return make
