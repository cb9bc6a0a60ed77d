# SPDX-License-Identifier: Apache-2.0
"""The rpm packages in a root of their own: installed, queried, erased; and where they do not fit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dist.names import plain_version
from harpctl.build_info import build_version
from harpctl.errors import ExitCode
from harpctl.facts.plugin_files import RCCL_SUFFIXED, SUFFIXED
from tests.harpctl.dist.conftest import files_for, only_file_for, run_command

pytestmark = [
    pytest.mark.dist,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not shutil.which("rpmbuild"), reason="needs rpmbuild (Debian: rpm)"),
]


def files_left(root: Path) -> list[str]:
    """Return the files below a root but for rpm's own database."""
    found = (str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    return sorted(name for name in found if not name.startswith(("var/lib/rpm/", "usr/lib/sysimage/rpm/")))


def test_it_is_installed_queried_and_erased(out: Path, tmp_path: Path) -> None:
    package, root = only_file_for(out, "harp-[0-9]*.rpm"), tmp_path / "root"
    rpm = ("rpm", "--root", root, "--dbpath", "/var/lib/rpm")
    scripts = [] if os.geteuid() == 0 else ["--noscripts"]  # they run in the root
    run_command(*rpm, "--initdb")
    beside = [only_file_for(out, f"harp-{name}-*.rpm") for name in ("lab", "debuginfo")]
    run_command(*rpm, "--install", "--nodeps", *scripts, package, *beside)
    assert run_command(*rpm, "--query", "harp").startswith(f"harp-{plain_version()}-1.")
    listed, of_lab = (
        set(run_command(*rpm, "--query", "--list", name).splitlines()) for name in ("harp", "harp-lab")
    )
    assert {
        f"/usr/lib64/{SUFFIXED}",
        f"/usr/lib64/{RCCL_SUFFIXED}",
        "/usr/share/man/man1/harpctl-setup.1.gz",
    } <= listed
    assert {
        "/usr/lib/harp/app/harplab/data/fault_injector",
        "/usr/share/man/man1/harpctl-lab-up.1.gz",
    } <= of_lab
    assert not listed & of_lab
    assert {f"/{name}" for name in files_left(root) if "/debug/" not in name} <= listed | of_lab
    run_command(*rpm, "--verify", "--nodeps", "harp")
    program = root / "usr" / "lib" / "harp" / "bin" / "harpctl"
    assert run_command(program, "--version") == f"harpctl {build_version()}\n"
    assert run_command(program, "demo").count("every byte checked") == 2
    journal = root / "var" / "lib" / "harp" / "journal"
    journal.mkdir(parents=True)
    (journal / "0001").touch()
    run_command(*rpm, "--erase", "harp-debuginfo", "harp-lab")
    assert "install harp-lab" in run_command(program, "demo", code=ExitCode.MISSING)
    if not scripts:
        assert "First run: harpctl rollback" in run_command(*rpm, "--erase", "harp", code=1)
        assert program.exists()
    (journal / "0001").unlink()
    run_command(*rpm, "--erase", *scripts, "harp")
    assert files_left(root) == []


@pytest.mark.skipif(not shutil.which("rpmlint"), reason="needs rpmlint")
def test_rpmlint_finds_no_error(root: Path, out: Path) -> None:
    output = run_command("rpmlint", "--rpmlintrc", root / "dist" / "rpmlintrc", *files_for(out, "*.rpm"))
    assert " 3 packages and 0 specfiles checked; 0 errors" in output


def test_for_another_machine_it_is_refused(out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dist import make
    from dist.rpm import build_rpm

    tree = tmp_path / "tree"
    tree.mkdir()
    run_command(
        "sh",
        "-c",
        'rpm2cpio "$0" | (cd "$1" && cpio -idm --quiet)',
        only_file_for(out, "harp-[0-9]*.rpm"),
        tree,
    )
    zsh = tree / "usr/share/zsh"
    (zsh / "site-functions").rename(zsh / "vendor-completions")
    monkeypatch.setattr(make, "THIS", "s390x")  # its lab's programs are those that are built
    build_rpm(tree, tmp_path, "s390x", debug=False)
    root = tmp_path / "root"
    rpm = ("rpm", "--root", root, "--dbpath", "/var/lib/rpm")
    run_command(*rpm, "--initdb")
    output = run_command(*rpm, "--install", "--nodeps", only_file_for(tmp_path, "harp-[0-9]*.rpm"), code=1)
    assert "is intended for a different architecture" in output
    assert files_left(root) == []
