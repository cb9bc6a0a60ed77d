# SPDX-License-Identifier: Apache-2.0
"""`harpctl report` and `doctor --bundle`: what is in a bundle, what must never be, damaged ones."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import stat
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.bundle import allow
from harpctl.bundle.collect import gather_bundle
from harpctl.cli import app
from harpctl.doctor.archive import read_archive, write_archive
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from tests.conftest import PLUGIN_DIR
from tests.harpctl.doctor import world
from tests.harpctl.stats import build

SECRETS = (
    "tok-4711-aaaa", "hunter2hunter2", "sk-live-bbbbbb", "conf-comment-cccc", "conf-value-dddd",
    "cmdline-eeee", "argv-ffffff", "misspelt-gggg", "conf-nccl-hhhh", "mallory",
)  # fmt: skip
CONF = f"""\
# the key of the vault is {SECRETS[3]}
[eni]
interface = eth1
mtu = 9000
password = {SECRETS[4]}{SECRETS[4] * 8}
[vault]
key = {SECRETS[4]}
"""


def _write_file(root: Path, path: str, text: str | bytes) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Provide a host with a job, and secrets wherever somebody may have put some."""
    root = tmp_path / "host"
    build.write_page(root, 100, build.pack_page(100, {"session": [{"host": "peer", "state": "OPEN"}]}))
    build.make_process(
        root, 100, RANK="3", NCCL_DEBUG="INFO", HARP_PATHS="4", WANDB_API_KEY=SECRETS[2], HF_TOKEN=SECRETS[0],
        DB_PASSWORD=SECRETS[1], HARP_SECRET=SECRETS[7], NCCL_DEBUG_FILE="/home/mallory/nccl.log",
        NCCL_GRAPH_FILE=f"https://x:{SECRETS[1]}@host/", HARP_DUMP_DIR="/var/dumps", PATH="/home/mallory/bin",
    )  # fmt: skip
    _write_file(root, "/proc/100/cmdline", f"python\0train.py\0--token\0{SECRETS[6]}\0")
    _write_file(root, "/proc/cmdline", f"root=/dev/vda1 hugepages=20 vault.key={SECRETS[5]} quiet\n")
    _write_file(root, "/etc/nccl.conf", f"NCCL_NET=Socket\nNCCL_VAULT={SECRETS[8]}\n# {SECRETS[8]}\n")
    _write_file(root, "/usr/local/tfabric/tools/config/ztcp0.conf", CONF)
    _write_file(root, "/var/dumps/harp-node-100-7-1.trace", b"HARPSTAT and more")
    _write_file(root, "/var/dumps/harp-node-100-7-2.trace", b"not ours: " + SECRETS[1].encode())
    _write_file(root, "/var/dumps/passwords.txt", SECRETS[1])
    (root / "var/dumps/harp-link.trace").symlink_to("/var/dumps/passwords.txt")
    return root


def _run_report(root: Path, file: Path) -> tuple[dict[str, object], dict[str, bytes]]:
    done = CliRunner().invoke(app, ["report", "--root", str(root), "--output", str(file), "--json"])
    assert done.exit_code == 0, done.output
    _, files = read_archive(file)
    return json.loads(done.stdout), files


def test_what_is_in_it(root: Path, tmp_path: Path) -> None:
    report, files = _run_report(root, tmp_path / "b.tar.gz")
    assert set(files) == {
        "manifest.json", "doctor.json", "facts.json", "status.json", "environment.json", "versions.json",
        "statistics.json", f"statistics/100-{build.START}.stats", "dumps/harp-node-100-7-1.trace",
        "confs/ztcp0.conf",
    }  # fmt: skip
    assert set(report["files"]) == set(files) - {"manifest.json"}  # type: ignore[call-overload]
    assert ((tmp_path / "b.tar.gz").stat().st_mode & 0o777) == 0o600
    environment = json.loads(files["environment.json"])
    job = environment["processes"]["100"]
    assert (job["RANK"], job["HARP_PATHS"], job["NCCL_DEBUG_FILE"]) == ("3", "4", "/home/USER/nccl.log")
    assert job["HARP_SECRET"] == job["NCCL_GRAPH_FILE"] == allow.LEFT_OUT
    assert "HF_TOKEN" not in job
    assert {"name": "NCCL_NET", "value": "Socket", "source": "/etc/nccl.conf"} in environment["settings"]
    assert "hugepages=20" in json.loads(files["facts.json"])["boot"]["cmdline"]
    assert b"mtu = 9000" in files["confs/ztcp0.conf"]
    assert [one["what"] for one in report["unread"]] == ["/var/dumps/harp-node-100-7-2.trace"]  # type: ignore[attr-defined]


def test_no_secret_is_in_it(root: Path, tmp_path: Path) -> None:
    _, files = _run_report(root, tmp_path / "b.tar.gz")
    for name, data in files.items():
        assert [secret for secret in SECRETS if secret.encode() in data or secret in name] == [], name


def test_only_what_is_named_is_included() -> None:
    """Every variable of the plugin is; others are not, whatever they are called."""
    source = (PLUGIN_DIR / "src" / "host" / "env.h").read_text()
    assert set(re.findall(r'"(HARP_\w+)"', source)) <= allow.VARIABLES
    assert allow.filter_variables({"FOO": "x", "AWS_REGION": "y"}) == {}
    assert (
        allow.filter_conf("[eni]\nmtu = a secret\n", allow.Scrubber())
        .splitlines()[1]
        .startswith("# line 2 is left out")
    )


def test_scrubbing_is_the_second_line() -> None:
    scrubber = allow.Scrubber()
    scrubber.learn(
        {"HARP_X": "topsecret", "HARP_PATHS": "4", "HF_TOKEN": "abc", "USER": "root", "A_KEY": "abcdef"}
    )
    assert scrubber.data({"a": ["x topsecret abcdef root abc 4", "/home/eve/x"]}) == {
        "a": [f"x {allow.LEFT_OUT} {allow.LEFT_OUT} root abc 4", "/home/USER/x"]
    }


def test_of_many_dumps_the_newest_are_included(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harpctl.bundle.collect.DUMPS_MAX", 2)
    for number in range(5):
        file = _write_file(root, f"/var/dumps/harp-node-{number}-7-1.trace", b"HARPSTAT")
        os.utime(file, (2e9, 2e9 + number % 4))
    bundle = gather_bundle(Host(root))
    dumps = {name for name in bundle.files if name.startswith("dumps/")}
    assert dumps == {"dumps/harp-node-2-7-1.trace", "dumps/harp-node-3-7-1.trace"}
    why = {one["what"]: one["why"] for one in bundle.unread}
    assert why["5 dumps in /var/dumps"] == "only the 2 newest are included"


def test_what_cannot_be_read_is_listed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise HarpError("The facts are gone.")

    monkeypatch.setattr("harpctl.bundle.collect.read_status", refuse)
    monkeypatch.setattr("harpctl.bundle.collect.FILE_BYTES_MAX", 10)
    _write_file(root, "proc/200/cmdline", "sleep\0")
    _write_file(root, "proc/2/cmdline", "")  # a thread of the kernel, which has no environment
    bundle = gather_bundle(Host(root))
    why = {one["what"]: one["why"] for one in bundle.unread}
    assert why["status.json"] == "The facts are gone."
    assert "no room" in why["/var/dumps/harp-node-100-7-1.trace"]
    assert "not readable" in why["the environment of 1 processes"]
    assert "doctor.json" in bundle.files


def test_a_file_that_is_there_stays(root: Path, tmp_path: Path) -> None:
    file = _write_file(tmp_path, "mine", "mine")
    done = CliRunner().invoke(app, ["report", "--root", str(root), "--output", str(file)])
    assert done.exit_code == ExitCode.FAILED
    assert "File exists" in done.output
    assert file.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a moment")
def test_without_root(tmp_path: Path) -> None:
    """The real host, as nobody: it ends well and lists what is missing."""
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(0o755)
    gather_bundle(Host())  # imports what is imported late: this Python may be readable to root alone
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            done = CliRunner().invoke(app, ["report", "--output", str(tmp_path / "b"), "--json"])
            (tmp_path / "output").write_text(done.output)
            code = done.exit_code
        finally:  # nothing of this process may go on as if it were pytest
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0, (tmp_path / "output").read_text()
    manifest, files = read_archive(tmp_path / "b")
    assert not manifest.is_root
    assert manifest.unread
    assert {"doctor.json", "facts.json", "status.json"} <= set(files)


# ---- reading


def _run_doctor(file: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", "--bundle", str(file), *words])


def test_doctor_reports_the_findings_of_the_bundled_host(tmp_path: Path) -> None:
    there = world.World(tmp_path / "host")
    file = tmp_path / "b.tar.gz"
    _run_report(there.root, file)
    words = ["doctor", "--root", str(there.root)]
    direct, read = CliRunner().invoke(app, words), _run_doctor(file)
    assert read.exit_code == direct.exit_code
    assert read.stdout.split("\n", 1)[1].splitlines() == direct.stdout.splitlines()
    assert read.stdout.startswith("image at 20")
    direct, read = CliRunner().invoke(app, [*words, "--json"]), _run_doctor(file, "--json")
    assert json.loads(read.stdout)["findings"] == json.loads(direct.stdout)["findings"]
    assert _run_doctor(file, "--fix").exit_code == ExitCode.USAGE


def test_wrong_and_damaged_bundles(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.tar.gz"
    _run_report(root, file)
    data = file.read_bytes()
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0x10
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w"):
        pass
    for name, (wrong, message) in {
        "cut": (data[: len(data) // 2], "cut off"),
        "flipped": (bytes(flipped), "damaged"),
        "text": (b"no bundle", "no gzip file"),
        "empty": (b"", ""),
        "gzip": (gzip.compress(b"x" * 3000), "damaged"),
        "tar": (gzip.compress(plain.getvalue()), "manifest.json is not in it"),
    }.items():
        done = _run_doctor(_write_file(tmp_path, name, wrong))
        assert done.exit_code == ExitCode.WRONG_DATA, name
        assert message in done.output
        assert "Traceback" not in done.output
    assert _run_doctor(tmp_path / "none").exit_code == ExitCode.MISSING


@pytest.mark.parametrize(
    ("manifest", "doctor", "message"),
    [
        ("{}", "[]", "manifest.json is not understood"),
        ("format 9", "[]", "has format 9"),
        ("", None, "holds no findings"),
        ("", "{", "doctor.json is not understood"),
        ("", '[{"id": 4}]', "doctor.json is not understood"),
        ("", '["x"]', "doctor.json is not understood"),
        ("", "7", "doctor.json is not understood"),
    ],
)
def test_contents_that_are_wrong(tmp_path: Path, manifest: str, doctor: str | None, message: str) -> None:
    good = {"format": 1, "host": "h", "harpctl": "1", "time": "t", "is_root": True, "files": []}
    if manifest.startswith("format"):
        good["format"], manifest = 9, ""
    files = {"manifest.json": (manifest or json.dumps(good)).encode()}
    if doctor is not None:
        files["doctor.json"] = doctor.encode()
    file = tmp_path / "b.tar.gz"
    write_archive(file, "x", files)
    done = _run_doctor(file)
    assert done.exit_code == ExitCode.WRONG_DATA
    assert message in done.output


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    good = {"format": 1, "host": "h\x1b[2J", "harpctl": "1", "time": "t", "is_root": True, "files": []}
    one = {
        "id": "confs.present",
        "title": "t\x1b]0;x\x07",
        "group": "confs",
        "level": "fail",
        "cause": "c\x1b[31m",
    }
    file = tmp_path / "b.tar.gz"
    write_archive(
        file, "x", {"manifest.json": json.dumps(good).encode(), "doctor.json": json.dumps([one]).encode()}
    )
    done = _run_doctor(file)
    assert done.exit_code == ExitCode.FAILED
    assert "\x1b]" not in done.output
    assert "\x1b[2J" not in done.output


@pytest.mark.parametrize("value", ["system", "drivers", "plugin", "hugepages", "confs.present"])
def test_a_secret_that_is_a_word_of_harpctl_leaves_findings_readable(tmp_path: Path, value: str) -> None:
    there = world.World(tmp_path / "host")
    build.make_process(there.root, 100, AUTH_MODE=value)
    _run_report(there.root, tmp_path / "b.tar.gz")
    direct = CliRunner().invoke(app, ["doctor", "--root", str(there.root), "--json"])
    read = _run_doctor(tmp_path / "b.tar.gz", "--json")
    found = [[(one["id"], one["level"]) for one in json.loads(x.stdout)["findings"]] for x in (direct, read)]
    assert found[0] == found[1]
