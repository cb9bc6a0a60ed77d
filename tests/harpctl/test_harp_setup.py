# SPDX-License-Identifier: Apache-2.0
"""harp_setup on machines that lack something: a PATH of its own with only what the test gives it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ALWAYS = ("sh", "cat", "chmod", "cksum", "dirname", "head", "mktemp", "mv", "rm", "tail", "uname", "getconf")


class Machine:
    """A checkout with nothing but harp_setup, and a PATH that a test fills."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.top, self.bin = folder / "check out", folder / "bin"
        self.top.mkdir()
        self.bin.mkdir()
        shutil.copy(root / "harp_setup", self.top)
        shutil.copy(root / "pyproject.toml", self.top)
        (self.top / "dist").mkdir()
        shutil.copy(root / "dist" / "pins.txt", self.top / "dist")
        for name in ALWAYS:
            found = shutil.which(name)
            assert found, name
            (self.bin / name).symlink_to(found)

    def program(self, name: str, code: str, folder: Path | None = None) -> None:
        file = (folder or self.bin) / name
        file.write_text(f"#!/bin/sh\n{code}\n")
        file.chmod(0o755)

    def venv(self) -> Path:
        """Make an environment that holds no program yet; return its folder of programs."""
        venv = self.top / ".venv"
        (venv / "bin").mkdir(parents=True)
        (venv / ".made-for").write_text(f"{self.top}\n")
        return venv / "bin"

    def user(self, uid: int) -> None:
        self.program("id", f"echo {uid}")

    def run(self, *words: str, **own: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.top / "harp_setup"), *words],
            env={"PATH": str(self.bin), "TMPDIR": str(self.top.parent), **own},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def error_of(self, *words: str) -> str:
        """Run what must fail; return its error text."""
        done = self.run(*words)
        assert done.returncode == 1
        return done.stderr


@pytest.fixture
def machine(root: Path, tmp_path: Path) -> Machine:
    return Machine(root, tmp_path)


def test_usage_names_every_command(machine: Machine) -> None:
    done = machine.run("help")
    assert done.returncode == 0
    assert all(f"\n  {name}" in done.stdout for name in ("build", "demo", "test", "help"))
    assert machine.run("--help").stdout == machine.run("-h").stdout == done.stdout


def test_unknown_words_are_refused(machine: Machine) -> None:
    error = machine.error_of("frobnicate")
    assert "there is no command 'frobnicate'" in error
    error = machine.error_of("build", "fast")
    assert "'build' takes --portable and nothing else: fast" in error
    error = machine.error_of("demo", "--portable")
    assert "'demo' takes no arguments: --portable" in error


def test_a_user_is_shown_what_to_install(machine: Machine) -> None:
    machine.user(1000)
    machine.program("apt-get", "echo must not run >&2; exit 99")
    error = machine.error_of("build")
    assert "the build needs, and this machine lacks: python3" in error
    assert "install with: sudo apt-get install -y python3" in error
    assert "must not run" not in error


def test_without_a_package_manager_it_reports_that(machine: Machine) -> None:
    machine.user(0)
    error = machine.error_of("build")
    assert "lacks: python3; no apt, dnf or yum is here" in error


@pytest.mark.parametrize(("manager", "package"), [("apt-get", "python3-venv"), ("dnf", "python3-pip")])
def test_root_installs_what_is_missing(machine: Machine, manager: str, package: str) -> None:
    """python3 has no venv, then it has; making the environment fails on purpose."""
    machine.user(0)
    installed = machine.bin.parent / "installed"
    log = machine.bin.parent / "log"
    machine.program(manager, f'echo "$*" >> "{log}"; : > "{installed}"')
    machine.program(
        "python3",
        f'case "$*" in *ensurepip*) [ -f "{installed}" ] ;; "-m venv"*) echo no space left >&2; exit 1 ;; esac',
    )
    error = machine.error_of("build")
    assert log.read_text().split()[-1] == package
    assert f"installing for the build: {package}" in error
    assert "no space left\nharp_setup: failed: virtual environment" in error


def test_a_failing_installation_is_shown(machine: Machine) -> None:
    machine.user(0)
    machine.program("apt-get", "echo E: Unable to fetch some archives >&2; exit 100")
    error = machine.error_of("build")
    assert "E: Unable to fetch some archives" in error


def test_an_old_python_is_named(machine: Machine) -> None:
    machine.user(1000)
    machine.program("python3", 'case "$1" in -V) echo Python 3.6.8 ;; *) exit 1 ;; esac')
    error = machine.error_of("build")
    assert "Python 3.6.8 is too old: harpctl needs Python 3.10 or newer" in error


@pytest.mark.parametrize("words", [(), ("setup",), ("--gpus", "8", "--dry-run")])
def test_without_a_command_it_is_harpctl_setup(machine: Machine, words: tuple[str, ...]) -> None:
    folder = machine.venv()
    for name in ("python", "harpctl"):
        machine.program(name, 'case "$1" in -c | -m | -V) ;; *) echo "called:" "$@" ;; esac', folder)
    done = machine.run(*words)
    assert done.stdout == " ".join(["called: setup", *(word for word in words if word != "setup")]) + "\n"


def environment(machine: Machine, pip: str) -> Path:
    """Make a virtual environment whose pip has a version and installs nothing; return its log."""
    log = machine.top.parent / "pip.log"
    machine.program("python", "")
    code = (
        f'case "$*" in *pip.__version__*) exec "{sys.executable}" -c "'
        f"import sys; sys.exit(tuple(map(int, '{pip}'.split('.'))) < (21, 3))"
        f'" ;; "-m pip -V") echo pip {pip} ;;'
        f' *install*) echo "$*" >> "{log}"; echo no index >&2; exit 1 ;; esac'
    )
    machine.program("python", code, machine.venv())
    return log


def test_an_old_pip_is_renewed_first_or_named(machine: Machine) -> None:
    log = environment(machine, "21.2")
    error = machine.error_of("setup")
    assert "pip 21.2 is too old, and no newer one can be had: 21.3 is needed" in error
    assert [line.split()[-1] for line in log.read_text().splitlines()] == ["pip>=21.3"]


def test_without_an_index_it_names_the_file_that_needs_none(machine: Machine) -> None:
    log = environment(machine, "23.0")
    error = machine.error_of("setup")
    assert "the Python packages can't be installed: is a package index reachable?" in error
    assert "bash harp_setup.sh" in error
    assert not list((machine.top / ".venv").glob(".installed-*"))
    (words,) = log.read_text().splitlines()
    assert "matplotlib" not in words
    assert f"--constraint {machine.top}/dist/pins.txt" in words
    assert words.endswith(f"--editable {machine.top}"), "a host is set up with harpctl alone, without extras"


def builder(machine: Machine, *, has_cc: bool) -> Path:
    """Make an environment that builds a plugin of nothing; return what was asked of pip, make and pytest."""
    machine.user(1000)
    log = machine.top.parent / "log"
    zig = machine.top / ".venv" / "zig"
    code = (
        f'case "$*" in *__version__* | *-V) ;; *ziglang.__file__*) echo "{zig}" ;;'
        f' *install*) echo "pip $*" >> "{log}" ;; *pytest*)'
        f' echo "$*${{PYTHONDONTWRITEBYTECODE:+, without bytecode}}" >> "{log}" ;; esac'
    )
    folder = machine.venv()
    machine.program("python", code, folder)
    machine.program("harpctl", f'echo "harpctl $*" >> "{log}"', folder)
    machine.program("make", f'echo "make $*" >> "{log}"')
    machine.program("cmp", "exit 0")
    if has_cc:
        machine.program("cc", 'case "$1" in --version) echo a compiler ;; esac')
    return log


# A Python whose pip installs all but some sets.
FAILING_PIP = """case "$*" in
  *__version__* | *-V) ;;
  *"[{sets}"* | *",{sets}]"*) echo no index >&2; exit 1 ;;
  *pytest*) echo "$*" >> "{log}" ;;
esac"""


@pytest.mark.parametrize(
    ("words", "has_cc", "is_portable"),
    [
        (("build",), True, False),
        (("demo",), True, False),
        (("test",), True, False),
        (("build",), False, True),
        (("build", "--portable"), True, True),
        (("test", "--packages", "tests/harpctl/dist"), True, True),
    ],
)
def test_only_packages_and_machines_without_a_compiler_fetch_one(
    machine: Machine, words: tuple[str, ...], has_cc: bool, is_portable: bool
) -> None:
    log = builder(machine, has_cc=has_cc)
    done = machine.run(*words)
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    assert any(line.startswith("pip") and line.endswith("[portable]") for line in lines) == is_portable
    (made,) = (line for line in lines if line.startswith("make"))
    assert ("VARIANT=portable" in made) == is_portable
    if words[0] == "demo":
        assert lines[-1] == "harpctl demo"
    if words[0] == "test":
        assert lines[-1] == " ".join(("-m pytest", *words[1:]))


def test_continuous_integration_tests_the_portable_build(machine: Machine) -> None:
    log = builder(machine, has_cc=True)
    assert machine.run("test", CI="true").returncode == 0
    assert "VARIANT=portable" in log.read_text()


def test_modules_are_compiled_once_for_all_tests(machine: Machine) -> None:
    log = builder(machine, has_cc=True)
    assert machine.run("test", PYTHONDONTWRITEBYTECODE="1").returncode == 0
    assert log.read_text().splitlines()[-1] == "-m pytest"


def test_the_packages_of_the_tests_are_needed(machine: Machine) -> None:
    """Packages are installed in the background, beside the build."""
    log = builder(machine, has_cc=True)
    machine.program("python", FAILING_PIP.format(log=log, sets="test"), machine.top / ".venv" / "bin")
    error = machine.error_of("test")
    assert "no index\n" in error
    assert "the Python packages of the tests can't be installed" in error
    assert "-m pytest" not in log.read_text()


def test_lightcc_can_be_left_out(machine: Machine) -> None:
    log = builder(machine, has_cc=True)
    machine.program("python", FAILING_PIP.format(log=log, sets="lightcc"), machine.top / ".venv" / "bin")
    done = machine.run("test")
    assert done.returncode == 0
    assert "the tests of lightcc that need PyTorch's CPU build are skipped" in done.stderr
    assert log.read_text().splitlines()[-1] == "-m pytest"


@pytest.mark.parametrize(
    ("words", "is_installed"),
    [
        (("-x", "--nccl"), True),
        (("tests",), True),
        (("tests/lightcc/test_codec.py", "tests/lab"), True),
        (("-x", "tests/lab", "tests/conformance"), False),
    ],
)
def test_pytorch_is_installed_where_its_tests_may_run(
    machine: Machine, words: tuple[str, ...], is_installed: bool
) -> None:
    log = builder(machine, has_cc=True)
    machine.program("python", FAILING_PIP.format(log=log, sets="lightcc"), machine.top / ".venv" / "bin")
    done = machine.run("test", *words)
    assert done.returncode == 0
    assert ("that need PyTorch" in done.stderr) is is_installed


def test_root_installs_for_the_tests_at_once(machine: Machine) -> None:
    """A package that can't be had then costs no other one its installation."""
    log = builder(machine, has_cc=True)
    machine.user(0)
    machine.program("apt-get", f'echo "apt $*" >> "{log}"; exit 100')
    done = machine.run("test")
    assert done.returncode == 0, done.stderr
    first, *later = (line for line in log.read_text().splitlines() if line.startswith("apt") and "install" in line)
    assert {"clang", "openmpi-bin", "strace"} <= set(first.split())
    assert any("strace" in line and "clang" not in line.split() for line in later)
    assert "strace" in done.stderr


def test_nothing_temporary_is_left(machine: Machine) -> None:
    machine.user(1000)
    machine.run("build")
    machine.run("help")
    assert not list(machine.top.parent.glob("harp_setup.*"))


def test_ci_runs_the_same_command(root: Path, tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(root / ".ci" / "run", tmp_path / ".ci")
    fake = tmp_path / "harp_setup"
    fake.write_text('#!/bin/sh\necho "called: CI=$CI $*"\n')
    fake.chmod(0o755)
    done = subprocess.run([str(tmp_path / ".ci" / "run")], capture_output=True, text=True, check=True)
    assert done.stdout == "called: CI=true test\n"
