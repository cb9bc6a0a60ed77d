# SPDX-License-Identifier: Apache-2.0
"""All that `make dist` makes: named, documented, with the same bytes in another checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dist.make import merge_packages, pinned, requirements
from dist.names import plain_version
from harpctl.build_info import build_version
from tests.harpctl.dist.conftest import only_file_for, run_command
from tests.meta.test_docs import list_items

whole = pytest.mark.dist


@whole
@pytest.mark.timeout(1800)
def test_sums_name_every_file_and_hold(out: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(out, tmp_path / "copy")
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(list(copy.iterdir())) - 1
    damaged = only_file_for(copy, "harp_*.deb")
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    done = subprocess.run(
        ["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=copy, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, f"{damaged.name}: FAILED\n")


@whole
@pytest.mark.timeout(1800)
def test_the_bill_of_materials_names_every_file_and_what_is_in_it(out: Path) -> None:
    bill = json.loads((out / f"harp-{plain_version()}.cdx.json").read_bytes())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", build_version())
    sums = dict(line.split()[::-1] for line in (out / "SHA256SUMS").read_text().splitlines())
    files = {each["name"]: each for each in bill["components"] if each["type"] == "file"}
    assert set(files) == set(sums) - {f"harp-{plain_version()}.cdx.json"}
    assert all(each["hashes"] == [{"alg": "SHA-256", "content": sums[name]}] for name, each in files.items())
    inside = {each["ref"]: set(each.get("dependsOn", ())) for each in bill["dependencies"]}
    packages = {f"pkg:pypi/{name}@{version}" for name, version in requirements().items()}
    assert packages <= inside[only_file_for(out, "harp_*.deb").name]
    bare = ("*.whl", "harp-lab*", "harp-d*")
    assert [inside[file.name] for pattern in bare for file in out.glob(pattern) if inside[file.name]] == []
    assert any(ref.startswith("pkg:deb/debian/python3") for ref in inside["harp_setup.sh"])
    assert all(each.get("licenses") for each in bill["components"] if each.get("purl", "").startswith("pkg:pypi"))


@whole
@pytest.mark.timeout(2400)
def test_another_checkout_gives_the_same_bytes(root: Path, out: Path, tmp_path: Path) -> None:
    if run_command("git", "-C", root, "status", "--porcelain"):
        pytest.skip("uncommitted changes, which a clone does not have")
    other = tmp_path / "another folder" / "with a longer name"
    run_command("git", "clone", "--quiet", root, other)
    done = subprocess.run(["./harp_setup", "dist"], cwd=other, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (other / "dist/out/SHA256SUMS").read_text() == (out / "SHA256SUMS").read_text()


def test_what_is_packed_is_pinned() -> None:
    assert requirements().items() <= pinned().items()
    assert {"ziglang", "hatchling"} <= set(pinned())


def test_what_differs_between_pythons_stays_apart(tmp_path: Path) -> None:
    for tag in ("cp310", "cp311"):
        for name, text in (("same/a.py", "1"), (f"same/b.{tag}.so", tag), ("other/a.py", tag)):
            file = tmp_path / "ext" / tag / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    (tmp_path / "app").mkdir()
    merge_packages(tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    shared = ["app/same/a.py", "app/same/b.cp310.so", "app/same/b.cp311.so"]
    assert left == [*shared, "ext/cp310/other/a.py", "ext/cp311/other/a.py"]


@whole
@pytest.mark.timeout(1800)
def test_a_host_is_set_up_in_the_space_that_is_stated(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    run_command("git", "clone", "--quiet", root, copy)
    for name in ("harp_setup", "pyproject.toml", "dist/pins.txt"):
        shutil.copy(root / name, copy / name)
    done = subprocess.run(
        ["./harp_setup", "setup", "--help"], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (stated,) = [int(line.split()[-4]) for line in done.stderr.splitlines() if "Python packages (harpctl," in line]
    packages = next((copy / ".venv/lib").glob("python3.*/site-packages"))
    apart = {"pip", "setuptools", "pkg_resources", "_distutils_hack"}  # the environment's own
    files = [
        Path(folder) / name
        for entry in packages.iterdir()
        if entry.name.partition("-")[0] not in apart
        for folder, _folders, names in os.walk(entry)
        for name in names
    ]
    taken = sum(file.stat().st_blocks * 512 for file in files) / 1e6
    assert stated / 2 < taken < stated, f"{taken:.0f} MB; harp_setup says {stated}"
    assert not any((packages / name).exists() for name in ("matplotlib", "numpy", "ziglang", "pydantic"))


def test_the_messages_in_the_document_exist(root: Path) -> None:
    text = (root / "docs" / "how-to" / "install.md").read_text()
    items = list_items(text.split("## Failed installations")[1].partition("\n## ")[0])
    messages = [match[0] for item in items if (match := re.match("(?:`[^`]+`|[^`:])+:", item))]
    phrases = {phrase for message in messages for phrase in re.findall("`([^`]+)`", message)}
    assert len(phrases) > 10
    sources = [*(root / "dist").glob("*.sh"), *(root / "tests/harpctl/dist").glob("test_*.py")]
    modules = ("harpctl/plugin/switch.py", "harpctl/change/os_errors.py", "harp_net/run.py")
    sources += [root / module for module in modules]
    sources += (root / "plugin/src/host").glob("*.c")
    source = "".join(file.read_text() for file in sources)
    assert sorted(phrase for phrase in phrases if phrase not in source) == []
