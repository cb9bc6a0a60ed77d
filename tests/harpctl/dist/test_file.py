# SPDX-License-Identifier: Apache-2.0
"""The self-contained file, with a stand-in for harpctl inside: pipes, cut downloads, where the tool goes."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dist import make
from dist.make import assemble, pack

TOOLS = "usr/local/tfabric/tools/harpctl"
STAND_IN = """\
#!/bin/sh
echo "called: $*"
echo "from: $0"
echo "input: $(wc -c) bytes"
case $* in *fail*) exit 7 ;; esac
"""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    folder = tmp_path / "stage"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "harpctl").write_text(STAND_IN)
    (folder / "bin" / "harpctl").chmod(0o755)
    (folder / "data").write_bytes(random.Random(1).randbytes(300_000))
    return folder


@pytest.fixture
def file(stage: Path, tmp_path: Path) -> Path:
    """Provide the file, made to take a folder of the test for the place where a host keeps the tool."""
    data = assemble(stage)
    for name in (f"harp_tools=/{TOOLS}", "harp_program=/usr/local/bin/harpctl"):
        variable, _equals, path = name.partition("=")
        assert data.count(f"\n{name}\n".encode()) == 1
        data = data.replace(name.encode(), f"{variable}={tmp_path}/host{path}".encode())
    target = tmp_path / "harp_setup.sh"
    target.write_bytes(data)
    return target


@pytest.fixture
def genuine(stage: Path, tmp_path: Path) -> Path:
    """Provide the file as it is, for tests with --root."""
    target = tmp_path / "genuine.sh"
    target.write_bytes(assemble(stage))
    return target


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "tmp").mkdir()

    def call(
        words: Sequence[str], data: bytes = b"", by: str = "bash", **env: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [by, *words],
            input=data,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), **env},
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert list((tmp_path / "tmp").iterdir()) == [], "it leaves something behind"
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def run_piped(run: Run, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done: subprocess.CompletedProcess[str] = run(["-s", "--", *words], file.read_bytes())
    return done


def names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} if folder.exists() else set()


def test_from_a_pipe_it_runs_a_command_that_reads_nothing_of_it(run: Run, file: Path, tmp_path: Path) -> None:
    done = run_piped(run, file, "doctor", "--json", "a b")
    assert done.returncode == 0, done.stderr
    assert "called: doctor --json a b\n" in done.stdout
    assert "input: 0 bytes\n" in done.stdout
    assert not (tmp_path / "host").exists(), "a command that only looks installs nothing"


@pytest.mark.parametrize("words", [["doctor"], ["--version"], ["-h"], ["setup", "--dry-run"]])
def test_from_a_file_it_does_the_same(run: Run, file: Path, tmp_path: Path, words: list[str]) -> None:
    done = run([str(file), *words])
    assert f"called: {' '.join(words)}\n" in done.stdout, done.stderr
    assert not (tmp_path / "host").exists()


def test_the_exit_code_is_the_commands(run: Run, file: Path) -> None:
    assert run_piped(run, file, "fail").returncode == 7


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the tool stays on the host")
@pytest.mark.parametrize(
    ("words", "called"),
    [([], "setup --yes"), (["--gpus", "4"], "setup --yes --gpus 4"), (["setup"], "setup")],
)
def test_setup_keeps_the_tool(run: Run, file: Path, tmp_path: Path, words: list[str], called: str) -> None:
    done = run_piped(run, file, *words)
    assert f"called: {called}\n" in done.stdout, done.stderr
    (home,) = (tmp_path / "host" / TOOLS).iterdir()
    assert f"from: {home}/bin/harpctl\n" in done.stdout
    assert (home / "harp_setup.sh").is_file()


def test_a_tree_gets_the_tool_below_its_root_and_once(run: Run, file: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for words in (["setup", "--root", str(tree)], ["setup", f"--root={tree}"]):
        done = run_piped(run, file, *words)
        assert done.returncode == 0, done.stderr
    (tools,) = [path for path in tree.rglob("harpctl") if path.is_dir()]
    (home,) = tools.iterdir()
    assert home.stat().st_mode & 0o777 == 0o755
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    run_piped(run, file, "setup", "--root", str(tree))
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before


def test_a_setup_that_is_refused_leaves_nothing(run: Run, genuine: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "usr/local").mkdir(parents=True)
    assert run_piped(run, genuine, "setup", "--fail", "--root", str(tree)).returncode == 7
    assert names_below(tree) == {"usr", "usr/local"}
    (tree / "var/lib/harp").mkdir(parents=True)  # the journal of one that had begun
    run_piped(run, genuine, "setup", "--fail", "--root", str(tree))
    assert len(list(tree.rglob("bin/harpctl"))) == 1


def test_the_copy_that_is_kept_is_the_file(run: Run, genuine: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    run_piped(run, genuine, "setup", "--root", str(tree))
    (kept,) = tree.rglob("harp_setup.sh")
    assert kept.read_bytes() == genuine.read_bytes()


def test_a_broken_tool_is_replaced(run: Run, file: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    run_piped(run, file, "setup", "--root", str(tree))
    (program,) = tree.rglob("bin/harpctl")
    program.write_text("#!/bin/sh\nexit 1\n")
    assert "called: setup" in run_piped(run, file, "setup", "--root", str(tree)).stdout
    assert program.read_text() == STAND_IN


def test_a_download_that_was_cut_off_changes_nothing(run: Run, file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    head = data.index(b"\nharp_main ") + 1
    begun = data.index(b"\n", data.index(b"\ntrap ") + 1)  # from then on it knows that it has to be whole
    line = data.index(b"\n", head) + 1
    cuts = {
        *range(0, head, 499),
        *range(head - 1, line + 2, 5),
        line - 1,
        line,
        line + 1,
        (line + len(data)) // 2,
        len(data) - 1,
    }
    tree = tmp_path / "tree"
    tree.mkdir()
    for cut in sorted(cuts):
        done = run(["-s", "--", "setup", "--root", str(tree)], data[:cut])
        assert "called" not in done.stdout, f"cut at {cut}"
        assert names_below(tree) == set(), f"cut at {cut}"
        if cut > begun:
            assert done.returncode != 0, f"cut at {cut}"
            assert done.stderr, f"cut at {cut}"
        if cut > line:
            assert done.returncode == 1
            assert "not complete" in done.stderr


def test_a_damaged_download_changes_nothing(run: Run, file: Path, tmp_path: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1000] ^= 1
    (tmp_path / "tree").mkdir()
    done = run(["-s", "--", "setup", "--root", str(tmp_path / "tree")], bytes(data))
    assert done.returncode == 1
    assert "not complete, or damaged" in done.stderr
    assert names_below(tmp_path / "tree") == set()


@pytest.mark.skipif(shutil.which("dash") is None, reason="no dash here")
def test_on_another_kind_of_machine_it_changes_nothing(run: Run, genuine: Path) -> None:
    genuine.write_bytes(re.sub(rb"(?m)^harp_arch=.*$", b"harp_arch=s390x", genuine.read_bytes(), count=1))
    done = run([str(genuine), "setup"])
    assert done.returncode == 1
    assert "this file is for Linux on s390x; here it is Linux on" in done.stderr


def test_another_shell_hands_over_or_fails(run: Run, file: Path) -> None:
    assert "called: doctor\n" in run([str(file), "doctor"], by="dash").stdout
    done = run(["-s", "--", "doctor"], file.read_bytes(), by="dash")
    assert done.returncode != 0
    assert "called" not in done.stdout


def test_a_tool_that_the_host_lacks_is_named(run: Run, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "path"
    path.mkdir()
    for name in ("bash", "uname", "id", "tar", "head", "tail", "mktemp", "wc", "cat", "rm", "chmod"):
        (path / name).symlink_to(shutil.which(name) or "")
    done = run([str(file), "doctor"], by=str(path / "bash"), PATH=str(path))
    assert done.returncode == 1
    assert "no 'gzip'" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_uninstall_waits_for_rollback(run: Run, file: Path, tmp_path: Path) -> None:
    run_piped(run, file, "setup")
    (home,) = (tmp_path / "host" / TOOLS).iterdir()
    link = tmp_path / "host/usr/local/bin/harpctl"
    link.parent.mkdir()
    link.symlink_to(home / "bin" / "harpctl")
    done = run_piped(run, file, "uninstall")
    assert done.returncode == 1
    assert "rollback" in done.stderr
    assert home.is_dir()
    link.unlink()
    assert run_piped(run, file, "uninstall").returncode == 0
    assert names_below(tmp_path / "host") == {"usr", "usr/local", "usr/local/bin"}


@pytest.mark.parametrize("words", [("--root", "{}"), ("--root={}/",)])
def test_uninstall_of_a_tree(run: Run, genuine: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    run_piped(run, genuine, "setup", "--root", str(tree))
    assert list((tree / TOOLS).iterdir())
    (tree / "usr/local/bin").mkdir()
    (tree / "usr/local/bin/harpctl").symlink_to("nowhere")
    given = [word.format(tree) for word in words]
    done = run_piped(run, genuine, "uninstall", *given)
    assert done.returncode == 1
    assert f"rollback --root {tree}" in done.stderr
    (tree / "usr/local/bin/harpctl").unlink()
    assert run_piped(run, genuine, "uninstall", *given).returncode == 0
    assert names_below(tree) == {"usr", "usr/local", "usr/local/bin"}
    assert run_piped(run, genuine, "uninstall", "--root", str(tmp_path / "none")).returncode == 1


def test_the_same_folder_gives_the_same_bytes(stage: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(stage, other)
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
    assert pack(stage) == pack(other)
    (other / "data").write_bytes(b"x")
    assert pack(stage) != pack(other)


def test_a_plugin_that_is_not_built_is_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "BUILD", tmp_path)
    monkeypatch.setattr(make, "find_python", lambda _cache: pytest.fail("it begins to build a Python"))
    monkeypatch.setattr("sys.argv", ["make", "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"no plugin/build/libnccl-net\.so"):
        make.main()
