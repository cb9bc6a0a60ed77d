# SPDX-License-Identifier: Apache-2.0
"""Builds the private Python: CPython from the distribution's source package, for the oldest glibc in use.

It is one program with its compiled modules inside and the standard library beside it, as byte code, so that
`harpctl` runs on hosts whose own Python is too old. Sources come by name through apt; the compiler is zig's.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

PACKAGE = "python3.11"  # the newest that Debian 12 and Ubuntu 22.04 have the source of
VERSION = "3.11"
TAG = "cp311"
GLIBC = "2.17"  # CentOS 7's
BESIDE = ("zlib", "libffi")  # what it links, from source as well

# Modules in C that harpctl and its libraries import. What needs a library that is not here is left out;
# stand_ins/ has what is imported nevertheless.
MODULES = frozenset(
    {"_asyncio", "_bisect", "_blake2", "_contextvars", "_csv", "_datetime", "_decimal", "_heapq", "_json"}
    | {
        "_md5",
        "_multiprocessing",
        "_opcode",
        "_pickle",
        "_posixshmem",
        "_posixsubprocess",
        "_queue",
        "_random",
    }
    | {"_sha1", "_sha256", "_sha3", "_sha512", "_socket", "_statistics", "_struct", "_typing", "_zoneinfo"}
    | {
        "array",
        "binascii",
        "cmath",
        "fcntl",
        "grp",
        "math",
        "mmap",
        "resource",
        "select",
        "syslog",
        "termios",
    }
    | {"unicodedata"}
)
WITH_LIBRARIES = (
    "zlib zlibmodule.c -lz",
    (
        "_ctypes _ctypes/_ctypes.c _ctypes/callbacks.c _ctypes/callproc.c _ctypes/stgdict.c _ctypes/cfield.c"
        " -lffi -ldl"
    ),
)
LEFT_OUT = (  # parts of the standard library
    *(
        "test",
        "idlelib",
        "tkinter",
        "turtledemo",
        "turtle.py",
        "lib2to3",
        "distutils",
        "pydoc_data",
        "msilib",
    ),
    *("ensurepip", "venv", "site-packages", "xmlrpc", "wsgiref"),
    *("sqlite3", "ssl.py", "dbm", "curses", "lzma.py", "bz2.py"),  # their libraries are not there
    *("__phello__", "__hello__.py", "antigravity.py", "this.py"),
)
BUILD_TIME = '''"""What this Python was built with: nothing that harpctl or its libraries ask for."""

build_time_vars = {"TZPATH": "/usr/share/zoneinfo:/usr/lib/zoneinfo:/etc/zoneinfo"}
'''
SOURCES = "sources.json"  # in its folder: what it was built from, with versions
LICENSES = {"python": "LICENSE", "zlib": "README", "libffi": "LICENSE"}


class UnavailableError(Exception):
    """The private Python can't be built on this machine; the text says why."""


def _run(what: str, argv: list[str], folder: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        argv,
        cwd=folder,
        env=None if env is None else {**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise UnavailableError(f"{what} failed (exit code {done.returncode}):\n{tail}")
    return done.stdout


# ---- sources ----


def _apt_options(folder: Path) -> list[str]:
    """Make a state of apt below a folder, which knows the source packages of this machine's archives."""
    parts = folder / "parts"
    for made in (parts, folder / "lists" / "partial", folder / "cache" / "archives" / "partial"):
        made.mkdir(parents=True, exist_ok=True)
    for file in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]:
        if not file.is_file() or file.suffix not in {".list", ".sources"}:
            continue
        lines = file.read_text(encoding="utf-8").splitlines()
        if file.suffix == ".list":
            lines = ["deb-src" + line[3:] for line in lines if line.startswith(("deb ", "deb\t"))]
        else:
            lines = ["Types: deb-src" if line.lower().startswith("types:") else line for line in lines]
        (parts / file.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": parts,
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _fetch(package: str, options: list[str], folder: Path) -> Path:
    """Fetch and unpack a source package, the newest version that can really be had; return its folder."""
    listed = _run("asking apt for versions", ["apt-cache", *options, "showsrc", package], folder)
    versions = {line.split()[1] for line in listed.splitlines() if line.startswith("Version:")}
    named = {line.split()[1] for line in listed.splitlines() if line.startswith("Package:")}
    if package not in named:
        raise UnavailableError(f"apt knows no source package {package}")
    failure = None
    for version in sorted(versions, key=_version_key, reverse=True):
        target = folder / package
        target.mkdir(exist_ok=True)
        try:
            argv = ["apt-get", *options, "source", "--quiet", f"{package}={version}"]
            _run(f"fetching the source of {package} {version}", argv, target)
        except UnavailableError as error:  # an archive's index may be ahead of its files
            failure = error
            continue
        return next(entry for entry in sorted(target.iterdir()) if entry.is_dir())
    raise failure or UnavailableError(f"apt has no version of {package}")


def _version_key(version: str) -> list[tuple[int, str]]:
    words = "".join(char if char.isalnum() else " " for char in version).split()
    parts = [piece for word in words for piece in _split_digits(word)]
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _split_digits(word: str) -> list[str]:
    pieces = [""]
    for char in word:
        if pieces[-1] and pieces[-1][-1].isdigit() != char.isdigit():
            pieces.append("")
        pieces[-1] += char
    return pieces


# ---- building ----


def _compiler(zig: Path, folder: Path, cache: Path) -> dict[str, str]:
    """Write the compiler's commands; return the environment that makes a build use them."""
    folder.mkdir()
    target = f"{platform.machine()}-linux-gnu.{GLIBC}"
    commands = {
        "cc": f"'{zig}' cc -target {target} -fno-sanitize=undefined -Wno-date-time"
        f" '-ffile-prefix-map={folder.parent}=.' '-ffile-prefix-map={zig.parent}=zig'",
        "ar": f"'{zig}' ar",
        "ranlib": f"'{zig}' ranlib",
    }
    for name, command in commands.items():
        lines = [
            "#!/bin/sh",
            f"export SOURCE_DATE_EPOCH=0 ZIG_GLOBAL_CACHE_DIR='{cache}' ZIG_LOCAL_CACHE_DIR='{cache}'",
        ]
        (folder / name).write_text("\n".join([*lines, f'exec {command} "$@"', ""]), encoding="utf-8")
        (folder / name).chmod(0o755)
    tools = {"CC": "cc", "AR": "ar", "RANLIB": "ranlib"}
    return {variable: str(folder / name) for variable, name in tools.items()}


def _build_libraries(sources: dict[str, Path], prefix: Path, env: dict[str, str]) -> None:
    env = {**env, "CFLAGS": "-O2 -fPIC"}
    jobs = f"-j{os.cpu_count() or 1}"
    options = {
        "zlib": ["--static"],
        "libffi": [
            "--disable-shared",
            "--disable-docs",
            "--disable-multi-os-directory",
            "--disable-exec-static-tramp",  # needs memfd_create, which this glibc has not
        ],
    }
    for name in BESIDE:
        _run(f"configuring {name}", ["./configure", f"--prefix={prefix}", *options[name]], sources[name], env)
        _run(f"building {name}", ["make", jobs, "libz.a" if name == "zlib" else "all"], sources[name], env)
        _run(f"installing {name}", ["make", "install"], sources[name], env)


def _build_program(source: Path, build: Path, prefix: Path, env: dict[str, str]) -> Path:
    """Build the interpreter with its modules inside; return the program."""
    build.mkdir()
    argv = [
        os.path.relpath(source / "configure", build),  # it stays in the program: no folder of this machine
        "--prefix=/python",
        "--disable-shared",
        "--disable-test-modules",
        "--without-ensurepip",
        "--without-doc-strings",
        "--with-pkg-config=no",
        f"CPPFLAGS=-I{prefix}/include",
        f"LDFLAGS=-L{prefix}/lib",
        "OPT=-O2 -DNDEBUG -fwrapv",
    ]
    _run("configuring Python", argv, build, env)
    known = (build / "Modules" / "Setup.stdlib").read_text(encoding="utf-8").splitlines()
    lines = {line.split()[0]: line for line in known if line and line[0] not in "#*"}
    if missing := [name for name in sorted(MODULES) if name not in lines]:
        raise UnavailableError(f"this Python's source has no modules {', '.join(missing)}")
    setup = ["*static*", *(lines[name] for name in sorted(MODULES)), *WITH_LIBRARIES, ""]
    (build / "Modules" / "Setup.local").write_text("\n".join(setup), encoding="utf-8")
    _run("building Python", ["make", f"-j{os.cpu_count() or 1}", "python"], build, env)
    return build / "python"


def _strip(zig: Path, program: Path, target: Path) -> None:
    if strip := shutil.which("strip"):
        _run("stripping Python", [strip, "-o", str(target), str(program)], target.parent)
    else:
        _run("stripping Python", [str(zig), "objcopy", "--strip-all", str(program), str(target)], target.parent)
    target.chmod(0o755)


def _install(source: Path, program: Path, zig: Path, stand_ins: Path, target: Path) -> None:
    """Lay the program and its library out; byte code only, which names no folder of this machine."""
    (target / "bin").mkdir(parents=True)
    _strip(zig, program, target / "bin" / "python3")
    library = target / "lib" / f"python{VERSION}"
    shutil.copytree(source / "Lib", library, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    for name in LEFT_OUT:
        path = library / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for file in stand_ins.glob("*.py"):
        shutil.copy(file, library / file.name)
    (library / "lib-dynload").mkdir()  # Python looks for it to know where its library is
    asked = "import sysconfig; print(sysconfig._get_sysconfigdata_name())"
    name = _run("asking Python", [str(target / "bin" / "python3"), "-I", "-S", "-c", asked], target).strip()
    (library / f"{name}.py").write_text(BUILD_TIME, encoding="utf-8")
    compile_tree(target, library, in_place=True)
    for file in library.rglob("*.py"):
        file.unlink()
    for folder in library.rglob("__pycache__"):
        shutil.rmtree(folder)


def compile_tree(python: Path, tree: Path, *, in_place: bool) -> None:
    """Compile a tree to byte code that Python uses unchecked; in place of the source, or beside it."""
    argv = [str(python / "bin" / "python3"), "-I", "-S", "-m", "compileall", "-q", "-s", str(tree)]
    argv += ["--invalidation-mode", "unchecked-hash", *(["-b"] if in_place else []), str(tree)]
    _run(f"compiling {tree.name}", argv, tree)


def _licenses(sources: dict[str, Path], target: Path) -> None:
    target.mkdir()
    for name, file in LICENSES.items():
        shutil.copy(sources[PACKAGE if name == "python" else name] / file, target / f"{name}.txt")


def _versions(sources: dict[str, Path]) -> dict[str, str]:
    """Return the versions of Debian's source packages that were unpacked."""
    found = {}
    for name, folder in sources.items():
        first = (folder / "debian" / "changelog").read_text(encoding="utf-8").partition("\n")[0]
        found[name] = first.partition("(")[2].partition(")")[0]
    return found


def python_folder(stand_ins: Path, cache: Path) -> Path:
    """Return where the private Python is, or would be."""
    inputs = [Path(__file__), *sorted(stand_ins.glob("*.py"))]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in inputs)).hexdigest()[:16]
    return cache / f"{PACKAGE}-{platform.machine()}-{digest}"


def private_python(zig: Path | None, stand_ins: Path, cache: Path, say: Callable[[str], None]) -> Path:
    """Return the folder of the private Python, built now or before. Raises UnavailableError."""
    if zig is None:
        raise UnavailableError("no compiler for an old glibc (PyPI: ziglang)")
    for tool in ("apt-get", "dpkg-source", "make"):
        if not shutil.which(tool):
            raise UnavailableError(f"this machine has no {tool} (packages apt, dpkg-dev, make)")
    done = python_folder(stand_ins, cache)
    if done.is_dir():
        return done
    say("building the private Python (minutes)")
    cache.mkdir(parents=True, exist_ok=True)
    # configure and libtool take no blanks in paths.
    with tempfile.TemporaryDirectory(prefix="cpython-", dir=None if " " in str(cache) else cache) as name:
        work = Path(name)
        options = _apt_options(work / "apt")
        _run("reading the lists of source packages", ["apt-get", *options, "update"], work)
        sources = {package: _fetch(package, options, work) for package in (PACKAGE, *BESIDE)}
        env = _compiler(zig, work / "bin", cache.parent / "zig")
        _build_libraries(sources, work / "prefix", env)
        program = _build_program(sources[PACKAGE], work / "build", work / "prefix", env)
        _install(sources[PACKAGE], program, zig, stand_ins, work / "python")
        _licenses(sources, work / "python" / "licenses")
        told = json.dumps(_versions(sources), indent=1, sort_keys=True) + "\n"
        (work / "python" / SOURCES).write_text(told, encoding="utf-8")
        new = done.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        shutil.move(work / "python", new)
        new.rename(done)
    return done
