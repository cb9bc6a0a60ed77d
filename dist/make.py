# SPDX-License-Identifier: Apache-2.0
"""Builds dist/harp_setup.sh: the tool, its Python packages, a private Python and the plugin in one file.

`make dist` calls it. The same inputs give the same bytes: names are sorted, times fixed, owners root.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dist.cpython import TAG, UnavailableError, compile_tree, private_python
from dist.names import HERE as THIS
from harpctl.build_info import PACKAGED, build_version
from harplab.dissector.tables import WIRE_DOC

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
PINS = HERE / "pins.txt"
BUILD = TOP / "plugin" / "build"
BUILT = ("libnccl-net.so", "harp-perf")
LAB_BUILT = ("fault_injector", "default_buffers.so", "harp-simulate")  # the lab's, which hosts need not have
TAGS = ("cp310", "cp311", "cp312", "cp313", "cp314")  # the host's Pythons that a file without its own can use
TIME = 946684800  # the time of every file in the archive: 1 January 2000
LENGTH_ID = 12  # hexadecimal digits of the archive's inputs that tell one build from another


def say(line: str) -> None:
    """Say on stderr what is being done."""
    print(f"dist: {line}", file=sys.stderr)


# ---- Python packages ----


def pinned() -> dict[str, str]:
    """Return the versions that dist/pins.txt names."""
    lines = PINS.read_text(encoding="utf-8").splitlines()
    found = (re.match(r"([a-z0-9.-]+)==([^;\s]+)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def requirements() -> dict[str, str]:
    """Return harpctl's packages with all that they need, in the versions that are pinned."""
    pins, found, todo = pinned(), {}, ["harpctl"]
    while todo:
        for line in importlib.metadata.requires(todo.pop()) or ():
            name, marker = _split(line)
            if name in found or any(word in marker for word in ("extra", "platform_system", "sys_platform")):
                continue
            try:
                installed = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # it is for another Python than this one
            if pins.get(name) != installed:
                raise SystemExit(
                    f"dist: {name} {installed} is installed, and {PINS.name} has {pins.get(name, 'nothing')}."
                    " Run: ./harp_setup build"
                )
            found[name] = installed
            todo.append(name)
    return found


def _split(requirement: str) -> tuple[str, str]:
    head, _semicolon, marker = requirement.partition(";")
    match = re.match(r"[A-Za-z0-9._-]+", head.strip())
    if match is None:
        raise SystemExit(f"dist: a package requires '{requirement}', which names nothing")
    return _plain(match.group()), marker


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def install_packages(tag: str, target: Path, machine: str) -> None:
    """Install the packages for one Python, from wheels only, and nothing that is not pinned."""
    specs = [f"{name}=={version}" for name, version in sorted(requirements().items())]
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    argv += ["--no-compile", "--only-binary=:all:", "--target", str(target), "--implementation", "cp"]
    argv += ["--python-version", f"{tag[2]}.{tag[3:]}", "--no-warn-conflicts"]
    for platform_tag in (f"manylinux2014_{machine}", f"manylinux_2_17_{machine}"):
        argv += ["--platform", platform_tag]
    done = subprocess.run([*argv, *specs], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"dist: the Python packages for {tag} can't be had:\n{done.stderr.strip()}")
    names = {entry.stem.rpartition("-")[0] for entry in target.glob("*.dist-info")}
    if strangers := sorted(name for name in names if _plain(name) not in pinned()):
        raise SystemExit(f"dist: for {tag} there came what {PINS.name} does not name: {', '.join(strangers)}")


def split_packages(whole: Path, app: Path, ext: Path) -> None:
    """Put packages with compiled parts into ext/ and the others into app/."""
    for entry in sorted(whole.iterdir()):
        if entry.name in {"bin", "__pycache__"}:
            continue
        compiled = entry.suffix == ".so" or (entry.is_dir() and any(entry.rglob("*.so")))
        target = (ext if compiled else app) / entry.name
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            entry.rename(target)
    for folder in (app, ext):
        for name in (
            "RECORD",
            "INSTALLER",
            "REQUESTED",
            "direct_url.json",
        ):  # pip's records of what is not here
            for record in folder.glob(f"*.dist-info/{name}"):
                record.unlink()
        for hidden in folder.glob("*/.*"):
            shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()


def stage_packages(tags: tuple[str, ...], stage: Path, cache: Path, machine: str) -> None:
    """Lay out app/ and ext/; wheels that were unpacked before come from the cache."""
    for tag in tags:
        inputs = (tag, machine, sorted(requirements().items()), Path(__file__).read_bytes())
        key = hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]
        done = cache / f"packages-{tag}-{key}"
        if not done.is_dir():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="packages-", dir=cache) as name:
                say(f"fetching the Python packages for {tag} on {machine}")
                install_packages(tag, Path(name) / "all", machine)
                split_packages(Path(name) / "all", Path(name) / "app", Path(name) / "ext")
                shutil.copytree(name, Path(name) / "done", ignore=shutil.ignore_patterns("all", "done"))
                (Path(name) / "done").rename(done)
        shutil.copytree(done / "app", stage / "app", dirs_exist_ok=True)
        shutil.copytree(done / "ext", stage / "ext" / tag)
    merge_packages(stage)


def merge_packages(stage: Path) -> None:
    """Move from ext/ to app/ what can lie there for all Pythons: compiled parts have the name of theirs."""
    folders = sorted((stage / "ext").iterdir())
    for name in sorted({entry.name for folder in folders for entry in folder.iterdir()}):
        found: dict[Path, bytes] = {}
        files = ((file, folder) for folder in folders for file in folder.rglob("*") if file.is_file())
        mine = [(file, file.relative_to(folder)) for file, folder in files]
        mine = [(file, path) for file, path in mine if path.parts[0] == name]
        if any(found.setdefault(path, file.read_bytes()) != file.read_bytes() for file, path in mine):
            continue
        for file, path in mine:
            (stage / "app" / path).parent.mkdir(parents=True, exist_ok=True)
            file.replace(stage / "app" / path)
        for folder in folders:
            shutil.rmtree(folder / name, ignore_errors=True)


# ---- the archive ----


def pack(stage: Path) -> bytes:
    """Make the archive of a folder: the same folder gives the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(stage.rglob("*")):
            info = tar.gettarinfo(path, str(path.relative_to(stage)))
            info.uid = info.gid = 0
            info.uname = info.gname = "root"
            info.mtime = TIME
            info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            with path.open("rb") if info.isreg() else io.BytesIO() as data:
                tar.addfile(info, data if info.isreg() else None)
    return gzip.compress(buffer.getvalue(), 9, mtime=0)


def tree_digest(stage: Path) -> str:
    """Return a hash of a folder's names, modes and bytes."""
    digest = hashlib.sha256()
    for path in sorted(stage.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(stage)}\0{path.stat().st_mode & 0o100}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _stage_source(package: str, folder: Path) -> Path:
    """Copy one of our Python packages into a folder; return the folder of its data."""
    shutil.copytree(TOP / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    data = folder / package / "data"
    data.mkdir()
    return data


def stage_harpctl(folder: Path) -> Path:
    """Put harpctl into a folder, with what it has of a checkout; return the folder of its data."""
    data = _stage_source("harpctl", folder)
    (data / PACKAGED).write_text(build_version() + "\n", encoding="utf-8")
    return data


def _stage_lab_source(folder: Path) -> Path:
    """Put the lab's Python package and its data of a checkout into a folder; return the data's folder."""
    data = _stage_source("harplab", folder)
    shutil.copy(TOP / "docs" / "reference" / WIRE_DOC, data / WIRE_DOC)
    return data


def stage_lab(folder: Path, machine: str) -> None:
    """Put the lab's Python package into a folder, with its programs."""
    copy_built(LAB_BUILT, _stage_lab_source(folder), machine)


def built(machine: str) -> Path:
    """Return the folder of what is built for a machine."""
    return BUILD if machine == THIS else BUILD / f"packaged-{machine}"


def copy_built(names: Iterable[str], folder: Path, machine: str) -> None:
    """Copy what is built for a machine into a folder."""
    for name in names:
        shutil.copy(built(machine) / name, folder / name)
        (folder / name).chmod(0o755)


def stage_all(stage: Path, python: Path | None, cache: Path) -> None:
    """Lay out everything that the archive holds, but for the script."""
    stage_packages((TAG,) if python else TAGS, stage, cache, THIS)
    stage_harpctl(stage / "app")
    _stage_lab_source(stage / "app")
    if python:
        shutil.copytree(python, stage / "python", ignore=shutil.ignore_patterns("__pycache__"))
        for tree in (stage / "app", stage / "ext"):
            compile_tree(python, tree, in_place=False)
    folder = stage / "app" / "plugin" / "build"  # as in a checkout, so that harpctl finds it
    folder.mkdir(parents=True)
    copy_built((*BUILT, *LAB_BUILT), folder, THIS)
    stage_launcher(stage / "bin", THIS)
    shutil.copy(HERE / "run.py", stage / "run.py")


def stage_launcher(folder: Path, machine: str) -> None:
    """Put what starts harpctl into a new folder; it runs on one kind of machine only."""
    folder.mkdir()
    text = (HERE / "launch.sh").read_text(encoding="utf-8").replace("@ARCH@", machine)
    (folder / "harpctl").write_text(text, encoding="utf-8")
    (folder / "harpctl").chmod(0o755)


def assemble(stage: Path) -> bytes:
    """Return the whole file: functions, the line that calls them, the archive."""
    head = (HERE / "head.sh").read_text(encoding="utf-8")
    digest = hashlib.sha256((tree_digest(stage) + head).encode()).hexdigest()[:LENGTH_ID]
    words = {
        "@VERSION@": build_version(),
        "@ARCH@": THIS,
        "@ID@": f"{build_version()}-{digest}",
    }
    for word, value in words.items():
        head = head.replace(word, value)
    (stage / "head.sh").write_text(head, encoding="utf-8")  # with it, the file can be put together anew
    archive = pack(stage)
    last = f'harp_main "${{BASH_SOURCE-}}" {len(archive)} {hashlib.sha256(archive).hexdigest()} "$@"; exit $?\n'
    return head.encode() + last.encode() + archive


def find_python(cache: Path) -> Path | None:
    """Return the private Python, or None where it can't be built, and say so."""
    spec = importlib.util.find_spec("ziglang")
    zig = Path(spec.origin).parent / "zig" if spec and spec.origin else None
    try:
        return private_python(zig, HERE / "stand_ins", cache, say)
    except UnavailableError as reason:
        say(f"notice: no Python of its own in the file, so hosts need 3.10 or newer: {reason}")
        return None


def require_build() -> None:
    """Exit where the plugin is not built, before anything that takes minutes."""
    for name in BUILT:
        if not (BUILD / name).is_file():
            raise SystemExit(f"dist: there is no plugin/build/{name}; build it: ./harp_setup build")


def main() -> None:
    """Build the file that --out names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "harp_setup.sh")
    parser.add_argument("--no-python", action="store_true", help="carry no Python; hosts must have one")
    options = parser.parse_args()
    require_build()
    cache = TOP / ".cache" / "dist"
    python = None if options.no_python else find_python(cache)
    with tempfile.TemporaryDirectory(prefix="harp-dist-") as name:
        stage = Path(name)
        stage_all(stage, python, cache)
        data = assemble(stage)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    new = options.out.with_name(options.out.name + ".new")
    new.write_bytes(data)
    new.chmod(0o755)
    new.rename(options.out)
    say(f"{options.out} ({len(data) / 1e6:.1f} MB)")


if __name__ == "__main__":
    main()
