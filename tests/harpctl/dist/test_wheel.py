# SPDX-License-Identifier: Apache-2.0
"""The wheels in empty environments, and where they do not fit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import pytest

from dist.make import BUILD
from harpctl.build_info import build_version
from harpctl.errors import ExitCode
from harpctl.facts.elf import inspect_elf
from harpctl.facts.plugin_files import NAME
from tests.harpctl.dist.conftest import Chroot, only_file_for, run_command
from tests.harpctl.dist.test_deb import Debian

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]

WHEEL_BYTES_MAX = 1_000_000
TAG = "manylinux_2_27_x86_64"


@pytest.fixture
def wheel(out: Path) -> Path:
    return only_file_for(out, "harpctl-*.whl")


@pytest.fixture
def lab(out: Path) -> Path:
    return only_file_for(out, "harpctl_lab-*.whl")


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Provide the programs of an empty environment."""
    venv.create(tmp_path / "venv", with_pip=True)
    return tmp_path / "venv" / "bin"


def run_refused(programs: Path, *words: str | Path) -> str:
    """Let pip fail to install something; return its output, after a check that nothing was installed."""
    before = run_command(programs / "pip", "list", "--format=freeze")
    output = run_command(programs / "pip", "--disable-pip-version-check", "install", *words, code=1)
    assert run_command(programs / "pip", "list", "--format=freeze") == before
    assert not (programs / "harpctl").exists()
    return output


def test_in_an_empty_environment(wheel: Path, lab: Path, empty: Path, tmp_path: Path) -> None:
    assert wheel.stat().st_size < WHEEL_BYTES_MAX
    run_command(empty / "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
    assert run_command(empty / "harpctl", "--version") == f"harpctl {build_version()}\n"
    image = tmp_path / "image"
    for folder in ("usr/lib64", "var/lib"):
        (image / folder).mkdir(parents=True)
    run_command(empty / "harpctl", "install", "--root", image)
    assert "is enabled" in run_command(empty / "harpctl", "status", "--root", image)
    with (image / "usr/lib64" / NAME).open("rb") as file:
        assert inspect_elf(file, NAME).version == build_version()
    assert "harpctl_lab (wheel)" in run_command(empty / "harpctl", "demo", code=ExitCode.MISSING)
    run_command(empty / "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", lab)
    table = run_command(
        empty / "harpctl", *["bench", "--loopback", "--mode", "pingpong", "--time", "0.1", "--sizes", "8"]
    )
    assert "every byte checked" in table
    assert run_command(empty / "harpctl", "demo").count("every byte checked") == 2
    assert "harp.lua" in run_command(empty / "harpctl", "dissector", tmp_path)


def choose_versions(pip: Path, report: Path, *words: str | Path) -> dict[str, str]:
    """Let pip choose the versions of what it would install; return them by name."""
    argv = [str(pip), "install", "--dry-run", "--quiet", "--only-binary=:all:", "--report", str(report)]
    done = subprocess.run([*argv, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())["install"]
    return {one["metadata"]["name"]: one["metadata"]["version"] for one in found}


def test_beside_torch_and_transformers_no_version_changes(wheel: Path, empty: Path, tmp_path: Path) -> None:
    """Only metadata is fetched, for which pip has to be a newer one than Python brings."""
    try:
        run_command(empty / "python", "-m", "pip", "install", "--quiet", "--upgrade", "pip>=24")
        theirs = choose_versions(empty / "pip", tmp_path / "theirs.json", "torch", "transformers")
    except AssertionError as error:  # nothing of it is ours
        pytest.skip(f"pip finds no torch and transformers: {str(error).strip().splitlines()[-1]}")
    both = choose_versions(empty / "pip", tmp_path / "both.json", "torch", "transformers", wheel)
    assert {"torch", "transformers"} <= set(theirs)
    assert {name: both.get(name) for name in theirs} == theirs


def test_with_the_oldest_click(wheel: Path, empty: Path, root: Path) -> None:
    (oldest,) = re.findall(r'"click>=([0-9.]+)"', (root / "pyproject.toml").read_text(encoding="utf-8"))
    run_command(empty / "pip", "--disable-pip-version-check", "install", "--quiet", wheel, f"click=={oldest}.*")
    assert "Prepare this host for HARP" in run_command(empty / "harpctl", "--help")
    assert "--hugepages" in run_command(empty / "harpctl", "setup", "--help")
    assert "ID" in run_command(empty / "harpctl", "rollback", "--help")
    assert '"state"' in run_command(empty / "harpctl", "status", "--json", code=ExitCode.FAILED)


def test_a_lab_of_another_build_is_refused(lab: Path, empty: Path, tmp_path: Path) -> None:
    other = tmp_path / "harpctl-9.9-py3-none-any.whl"
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("harpctl-9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: harpctl\nVersion: 9.9\n")
        file.writestr("harpctl-9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("harpctl-9.9.dist-info/RECORD", "")
    assert "harpctl==" in run_refused(empty, "--no-index", other, lab)


def test_its_tag_is_true(wheel: Path) -> None:
    assert wheel.name.endswith(f"-py3-none-{TAG}.whl")
    output = run_command(sys.executable, "-m", "auditwheel", "show", wheel).replace("\n", " ")
    assert f'is consistent with the following platform tag: "{TAG}"' in output


def test_for_another_machine_or_damaged_it_is_refused(wheel: Path, empty: Path, tmp_path: Path) -> None:
    other = tmp_path / wheel.name.replace("x86_64", "s390x")
    shutil.copy(wheel, other)
    assert "is not a supported wheel on this platform" in run_refused(empty, other)
    cut = tmp_path / wheel.name
    cut.write_bytes(wheel.read_bytes()[:-1000])
    assert "is invalid" in run_refused(empty, cut)


def test_an_old_pip_does_not_know_its_tag(wheel: Path, empty: Path) -> None:
    run_command(empty / "pip", "--disable-pip-version-check", "install", "--quiet", "pip==20.2.4")
    assert "is not a supported wheel on this platform" in run_refused(empty, wheel)
    run_command(empty / "python", "-m", "pip", "install", "--quiet", "--upgrade", "pip")
    run_command(empty / "pip", "install", "--quiet", wheel)
    assert run_command(empty / "harpctl", "--version") == f"harpctl {build_version()}\n"


def fetch_requirements(wheel: Path, python: str, folder: Path) -> None:
    """Fetch what the wheel needs, as one does for a host without a network."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder)]
    argv += ["--only-binary=:all:", "--python-version", python, "--platform", "manylinux2014_x86_64"]
    subprocess.run([*argv, "--platform", TAG, str(wheel)], check=True)


@pytest.mark.parametrize(("release", "python"), [("bookworm", "3.11"), ("trixie", "3.13")])
def test_without_a_network(
    wheel: Path, lab: Path, debian: Debian, tmp_path: Path, release: str, python: str
) -> None:
    host: Chroot = debian(release)
    before = host.files()
    host.run("python3", "-m", "venv", "/tmp/venv")
    inside = host.put(wheel)
    output = host.run("/tmp/venv/bin/pip", "install", "--retries=0", "--timeout=1", inside, code=1)
    assert "No matching distribution found" in output
    assert not (host.folder / "tmp/venv/bin/harpctl").exists()
    fetch_requirements(wheel, python, tmp_path / "wheels")
    shutil.copytree(tmp_path / "wheels", host.folder / "tmp/wheels")
    host.run("/tmp/venv/bin/pip", "install", "--no-index", "--find-links", "/tmp/wheels", inside, host.put(lab))
    assert host.run("/tmp/venv/bin/harpctl", "demo").count("every byte checked") == 2
    host.run("/tmp/venv/bin/harpctl", "install")
    assert "is enabled" in host.run("/tmp/venv/bin/harpctl", "status")
    host.run("/tmp/venv/bin/harpctl", "rollback", "--yes")
    host.run("/tmp/venv/bin/pip", "uninstall", "--yes", "harpctl", "harpctl-lab")
    assert host.files() == before


# ---- the plugin for the environment of a job ----

NET_BYTES_MAX = 500_000


MUSL = ("--platform", "musllinux_1_2_x86_64", "--only-binary=:all:", "--target")


def test_the_plugin_for_musl_or_another_machine_is_refused(out: Path, empty: Path, tmp_path: Path) -> None:
    wheel = only_file_for(out, "harp_net-*.whl")
    assert "is not a supported wheel on this platform" in run_refused(empty, *MUSL, tmp_path / "musl", wheel)
    other = tmp_path / wheel.name.replace("x86_64", "aarch64")
    shutil.copy(wheel, other)
    assert "is not a supported wheel on this platform" in run_refused(empty, other)


def test_the_plugin_by_a_python_without_pip(out: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python, folder = tmp_path / "venv/bin/python", tmp_path / "harp"
    assert "No module named pip" in run_command(python, "-m", "pip", "--version", code=1)
    run_command(python, "-m", "zipfile", "-e", only_file_for(out, "harp_net-*.whl"), folder)
    found = run_command("env", f"PYTHONPATH={folder}", python, "-P", "-m", "harp_net").rstrip("\n")
    assert Path(found) == folder / "nvidia/nccl/lib/libnccl-net-harp.so"


def test_the_plugin_beside_another_one(out: Path, empty: Path) -> None:
    run_command(
        empty / "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "--no-index",
        only_file_for(out, "harp_net-*.whl"),
    )
    library = Path(run_command(empty / "python", "-P", "-m", "harp_net").rstrip("\n"))
    (library.parent / NAME).write_bytes(b"of somebody else")
    assert Path(run_command(empty / "python", "-P", "-m", "harp_net").rstrip("\n")) == library
    output = run_command("env", "NCCL_NET_PLUGIN=ofi", empty / "harp-run", "true", code=2)
    assert "NCCL_NET_PLUGIN=ofi names another plugin: unset it to use HARP" in output
    run_command(empty / "pip", "uninstall", "--yes", "--quiet", "harp-net")
    assert [path.name for path in library.parent.iterdir()] == [NAME]


def test_harpctl_without_root(wheel: Path, out: Path) -> None:
    """A user runs harpctl in an environment with our wheels alone."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if os.geteuid() != 0 or python is None:
        pytest.skip("needs root, to be somebody else, and a Python that everyone may run")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        run_command(python, "-m", "venv", f"{folder}/venv")
        programs = Path(folder) / "venv" / "bin"
        run_command(programs / "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        user = (*nobody, "env", "-u", "NCCL_NET_PLUGIN", f"--chdir={folder}")
        output = run_command(*user, programs / "harpctl", "install", code=ExitCode.REFUSED)
        line = output.partition("Without root, for jobs from here: export ")[2].rstrip("\n")
        assert line.endswith(f"/harpctl/data/{NAME}")
        assert "is enabled" in run_command(*user, line, programs / "harpctl", "status")
        packaged = only_file_for(out, "harp_net-*.whl")
        run_command(programs / "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", packaged)
        output = run_command(*user, programs / "harpctl", "status", code=1)
        named = output.partition("Nothing leads to it: export ")[2].split()[0]
        assert "is enabled" in run_command(*user, named, programs / "harpctl", "status")


def test_the_plugin_alone(out: Path, empty: Path) -> None:
    """Two lines, without root: the path for NCCL_NET_PLUGIN, or harp-run before the job's command."""
    wheel, hook = only_file_for(out, "harp_net-*.whl"), only_file_for(out, "harp_net_torch-*.whl")
    assert wheel.stat().st_size < NET_BYTES_MAX
    assert wheel.name.endswith(f"-py3-none-{TAG}.whl")
    assert hook.name.endswith("-py3-none-any.whl")
    run_command(empty / "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", wheel, hook)
    library = Path(run_command(empty / "python", "-P", "-m", "harp_net").rstrip("\n"))
    assert library.parent.parts[-3:] == ("nvidia", "nccl", "lib")
    with library.open("rb") as file:
        assert inspect_elf(file, library.name).version == build_version()
    perf = BUILD / "harp-perf"
    job = (*["--mode", "pingpong", "--sizes", "64K", "--time", "0.5", "--log", "none", "--plugin"], library)
    done = subprocess.run(
        [str(word) for word in (empty / "harp-run", perf, *job)],
        env={"HARP_IFNAME": "=lo", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "harp-run: 2 processes of this host used HARP: " in done.stderr
    code = (
        "import importlib.metadata as m, os\n"
        "for point in m.entry_points(group='torch.backends'): point.load()()\n"
        "print(os.environ['NCCL_NET_PLUGIN'])"
    )
    assert run_command(empty / "python", "-P", "-c", code).rstrip("\n") == str(library)
    run_command(empty / "pip", "uninstall", "--yes", "--quiet", "harp-net", "harp-net-torch")
    assert not library.exists()


# ---- lightcc ----


def test_lightcc_alone(out: Path, empty: Path) -> None:
    """The wheel of lightcc installs without any other package, and says that torch is missing."""
    wheel = only_file_for(out, "lightcc-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    run_command(empty / "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", wheel)
    words = "-P -m lightcc.estimate --params resnet50 --hosts 2 --step-ms 335 --gbit 8.25"
    assert "2D int8" in run_command(empty / "python", *words.split())
    for entry in ("lightcc.launch", "tiacc_training.torch.distributed.launch"):
        assert "install torch 2.4 or newer" in run_command(
            empty / "python", "-P", "-m", entry, "script.py", code=2
        )
