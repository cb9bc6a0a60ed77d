# SPDX-License-Identifier: Apache-2.0
"""Commands on many hosts: over a stand-in for ssh, and over a real sshd on the loopback address."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harpctl import fleet, ssh
from harpctl.command_line import (
    FILE,
    argument,
    command,
    dry_run_option,
    flag,
    json_option,
    option,
    yes_option,
)
from harpctl.errors import ExitCode, HarpError
from harpctl.fleet import (
    Remote,
    answer_of,
    collect_answers,
    find_json,
    find_remote,
    over_hosts,
    show_answers,
    show_plans,
)
from harpctl.plugin.command import compare_builds, install, status
from harpctl.ssh import HOSTS_MAX, parse_hosts

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin")
WAIT_S = 60
FAKE_SSH = r"""
import json, os, sys, time
at = sys.argv.index("--")
host, command = sys.argv[at + 1], sys.argv[at + 2]
streamed = sys.stdin.read()
with open(os.environ["FAKE_LOG"], "a") as log:
    call = {"host": host, "options": sys.argv[1:at], "command": command, "stdin": streamed}
    log.write(json.dumps(call) + "\n")

def end(code, out="", err=""):
    sys.stdout.write(out)
    sys.stderr.write(err)
    sys.exit(code)

host = host.rpartition("@")[2]
if "--dry-run" in command and not host.startswith("off"):
    changed = not host.startswith("right")
    code = 2 * (changed and "--exit-code" in command)
    end(code, json.dumps({"plan": "+ a line\n" * changed, "changed": changed}))
if host.startswith(("up", "right")):
    end(0, json.dumps({"summary": f"HARP is enabled on {host}."}))
elif host.startswith("build"):
    status = {"summary": "HARP 2 is enabled.", "version": "2", "build": host.split("-")[1]}
    end(0, json.dumps(status))
elif host == "off":
    end(1, json.dumps({"summary": "HARP is disabled."}))
elif host == "noisy":
    end(0, "Welcome!\n{not json}\n" + json.dumps({"message": "Set up HARP successfully"}, indent=2) + "\n")
elif host == "locked":
    end(255, "", "root@locked: Permission denied (publickey).\r\n")
elif host == "strange":
    end(255, "", "Host key verification failed.\r\n")
elif host == "bare":
    end(127, "", "bash: line 1: harpctl: command not found\n")
elif host == "garbage":
    end(0, "All good, boss\n")
elif host == "refuses":
    end(5, "", "harpctl: Both a and b are there.\n  Keep one: rm b\n")
elif host == "old":
    end(2, "", "Usage: harpctl [OPTIONS]\n\nError: No such command 'x'.\n")
elif host == "hangs":
    time.sleep(600)
"""


@pytest.fixture
def ssh_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Put a stand-in for ssh first in the PATH; return what it was called with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    code, program, log = folder / "ssh.py", folder / "ssh", tmp_path / "log"
    code.write_text(FAKE_SSH)
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(code))} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LOG", str(log))
    monkeypatch.delenv(fleet.DIST_VARIABLE, raising=False)
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


Log = Callable[[], list[dict[str, Any]]]


@over_hosts
@command()
@argument("name", nargs=-1, help="Who.")
@option("-c", "--count", default=1)
@option("--word", multiple=True)
@option("--loud/--quiet", default=False)
@option("--file", type=FILE)
@json_option
def greet(name: tuple[str, ...], **_options: object) -> None:
    """Greet."""
    click.echo(f"here: {name}")


@over_hosts
@command()
@dry_run_option
@yes_option
@flag("--exit-code")
@json_option
def change(*, dry_run: bool, yes: bool, exit_code: bool, as_json: bool) -> None:
    """Change something."""
    click.echo(f"here, {dry_run} {yes} {exit_code} {as_json}")


@over_hosts
@command()
@flag("--json", "-j", "machine")
def plain(*, machine: bool) -> None:
    """Do something."""
    click.echo(f"here, {machine}")


app = click.Group(commands=[greet, plain, change, install, status])


def run_harpctl(*words: str) -> Any:
    result = CliRunner().invoke(app, list(words))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def rows_of(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# ---- hosts ----


def test_hosts_are_split_and_kept_once() -> None:
    assert parse_hosts(["a,root@b", " c ,a", "10.0.0.1,fe80::1%eth0"]) == (
        "a",
        "root@b",
        "c",
        "10.0.0.1",
        "fe80::1%eth0",
    )


def test_hosts_out_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# all\nnode1 slots=8\n\n  user@node2 # the second\nnode1\n")
    assert parse_hosts([f"@{file}", "node3"]) == ("node1", "user@node2", "node3")


def test_hosts_in_the_notation_of_slurm(tmp_path: Path) -> None:
    assert parse_hosts(["gpu[1-3,11],a"]) == ("gpu1", "gpu2", "gpu3", "gpu11", "a")
    assert parse_hosts(["me@n[08-11]"]) == ("me@n08", "me@n09", "me@n10", "me@n11")
    assert parse_hosts(["r[1,2]n[0-1].x"]) == ("r1n0.x", "r1n1.x", "r2n0.x", "r2n1.x")
    (tmp_path / "hosts").write_text("gpu[1-2] slots=8\n")
    assert parse_hosts([f"@{tmp_path}/hosts"]) == ("gpu1", "gpu2")
    assert len(parse_hosts([f"n[1-{HOSTS_MAX}]"])) == HOSTS_MAX


@given(st.text("gpu[]-,0129:@. x", max_size=24))
def test_any_list_of_hosts_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(HarpError):
        assert not set("".join(parse_hosts([text]))) & set("[], ")


@pytest.mark.parametrize(
    "given",
    [
        "gpu[1-8",
        "gpu[8-1]",
        "gpu[]",
        "gpu[a-c]",
        "gpu[1-999999999]",
        "r[1-99]n[1-99]",
        "gpu[[1]]",
        "-oProxyCommand=id",
        "a;id",
        "a b",
        "$(id)",
        "a|b",
        "@",
        "a@",
        "gpu1:8",
        "@/none/hosts",
        "",
        ",",
        "a@-b",
        "ä",
    ],
)
def test_wrong_hosts(given: str) -> None:
    with pytest.raises(HarpError) as caught:
        parse_hosts([given])
    assert (caught.value.exit_code, bool(caught.value.hint)) == (2, True)


def test_slots_of_mpirun_have_their_own_hint() -> None:
    with pytest.raises(HarpError, match="neither slots nor ports") as caught:
        parse_hosts(["gpu1:1,gpu2:1"])
    assert "Write gpu1" in caught.value.hint


# ---- words ----


def test_here_without_hosts(ssh_log: Log) -> None:
    assert run_harpctl("greet", "a").stdout == "here: ('a',)\n"
    assert run_harpctl("plain", "--json").stdout == "here, True\n"
    with pytest.raises(FileNotFoundError):
        ssh_log()


def test_options_go_along_as_they_were_given(ssh_log: Log) -> None:
    run_harpctl(
        "greet",
        "-H",
        "up1",
        "-c",
        "3",
        "--word",
        "a b",
        "--word=c;id",
        "--loud",
        "--file",
        "x/$y",
        "--",
        "-n",
        "it's",
    )
    (call,) = ssh_log()
    assert shlex.split(call["command"]) == [
        *("harpctl", "greet", "--json", "--count=3", "--word=a b", "--word=c;id", "--loud", "--file=x/$y"),
        *("--", "-n", "it's"),
    ]
    assert "BatchMode=yes" in call["options"]
    assert "ConnectTimeout=10" in call["options"]
    assert not any("StrictHostKey" in option for option in call["options"])


def test_a_shell_gives_the_words_back_unchanged(ssh_log: Log, tmp_path: Path) -> None:
    word = f"a'b\"c $(touch {tmp_path}/hacked) `id` ; & | \\ \n *"
    run_harpctl("greet", "-H", "up1", "--word", word)
    (call,) = ssh_log()
    line = call["command"].replace("harpctl", "printf %s\\\\0", 1)
    output = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True).stdout
    assert f"--word={word}" in output.split("\0")
    assert not (tmp_path / "hacked").exists()


def test_only_what_was_given_goes_along(ssh_log: Log) -> None:
    run_harpctl("greet", "-H", "up1", "--quiet")
    run_harpctl("plain", "-H", "up1")
    assert [call["command"] for call in ssh_log()] == ["harpctl greet --json --quiet", "harpctl plain --json"]


def test_the_program_there(ssh_log: Log) -> None:
    run_harpctl("plain", "-H", "up1", "--remote", "sudo -n '/opt/my harp/harpctl'")
    assert shlex.split(ssh_log()[0]["command"]) == ["sudo", "-n", "/opt/my harp/harpctl", "plain", "--json"]
    assert run_harpctl("plain", "-H", "up1", "--remote", "").exit_code == 2


def test_the_self_contained_file_is_streamed(
    ssh_log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "harp_setup.sh"
    file.write_text("echo the whole tool\n")
    monkeypatch.setenv(fleet.DIST_VARIABLE, str(file))
    assert run_harpctl("plain", "-H", "up1,up2").exit_code == 0
    assert [(call["command"], call["stdin"]) for call in ssh_log()] == [
        ("bash -s -- plain --json", "echo the whole tool\n")
    ] * 2
    assert find_remote("harpctl").file == ""
    file.unlink()
    assert find_remote(None) == Remote()


def test_install_and_status_have_it(ssh_log: Log) -> None:
    assert run_harpctl("install", "-H", "up1", "--force", "--dir", "/opt/x").exit_code == 0
    assert run_harpctl("status", "-H", "up1").exit_code == 0
    assert [call["command"] for call in ssh_log()] == [
        "harpctl install --json --dir=/opt/x --force",
        "harpctl status --json",
    ]


# ---- answers ----


def test_a_table_with_every_kind_of_answer(ssh_log: Log) -> None:
    result = run_harpctl("plain", "-H", "up1,off,noisy,locked,strange,bare,garbage,refuses,old")
    assert result.exit_code == 5, "the worst of all"
    assert rows_of(result.stdout) == [
        "host result detail",
        "up1 ok HARP is enabled on up1.",
        "off failed HARP is disabled.",
        "noisy ok Set up HARP successfully",
        "locked unreachable root@locked: Permission denied (publickey).",
        "Let ssh in without a password: ssh-copy-id locked",
        "strange unreachable Host key verification failed.",
        "Check the host's key and add it to known_hosts: ssh strange",
        "bare no harpctl bash: line 1: harpctl: command not found",
        "Install harpctl there, name it with --remote PATH, or run this from harp_setup.sh.",
        "garbage no answer it answered without JSON: All good, boss",
        "Is the program there this harpctl? Look: ssh garbage harpctl --version",
        "refuses failed Both a and b are there.",
        "Keep one: rm b",
        "old failed Error: No such command 'x'.",
    ]
    assert len(ssh_log()) == 9


@pytest.mark.usefixtures("ssh_log")
def test_hosts_with_another_build_are_named() -> None:
    same = run_harpctl("status", "-H", "build-a,root@build-a,off")
    assert "differs" not in same.output
    result = run_harpctl("status", "-H", "build-a,build-b,root@build-a")
    assert result.exit_code == 1
    assert [row.split()[:2] for row in rows_of(result.stdout) if row.startswith("build")] == [
        ["build-a", "ok"],
        ["build-b", "differs"],
    ]
    assert "It is build b; 2 of 3 hosts have HARP 2, build a." in " ".join(result.stdout.split())
    results = json.loads(run_harpctl("status", "-H", "build-a,build-b,root@build-a", "--json").stdout)
    assert [one["result"] for one in results] == ["ok", "differs", "ok"]


def test_json_is_a_list_in_the_order_of_the_hosts(ssh_log: Log) -> None:
    result = run_harpctl("plain", "-H", "off,up1,locked", "--json")
    found = json.loads(result.stdout)
    assert result.stderr == ""
    assert [(row["host"], row["result"], row["code"]) for row in found] == [
        ("off", "failed", 1),
        ("up1", "ok", 0),
        ("locked", "unreachable", 4),
    ]
    assert found[1]["answer"] == {"summary": "HARP is enabled on up1."}
    assert result.exit_code == 4
    assert len(ssh_log()) == 3


def test_a_host_that_hangs_is_given_up(ssh_log: Log) -> None:
    begin = time.monotonic()
    result = run_harpctl("plain", "-H", "hangs,up1", "--remote-timeout", "4")
    assert time.monotonic() - begin < WAIT_S
    assert result.exit_code == 1
    assert "hangs timed out it did not end within 4 s" in rows_of(result.stdout)
    assert "up1 ok HARP is enabled on up1." in rows_of(result.stdout)
    del ssh_log


def test_many_hosts_run_at_once_but_not_all(ssh_log: Log) -> None:
    hosts = [f"up{number}" for number in range(7)]
    answers = collect_answers(["plain", "--json"], hosts, Remote(), at_once=2)
    assert [(answer.host, answer.result) for answer in answers] == [(host, "ok") for host in hosts]
    assert len(ssh_log()) == 7


def test_without_ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run_harpctl("plain", "-H", "a")
    assert (result.exit_code, "ssh is not installed here" in result.stderr) == (4, True)


def test_json_after_the_noise_of_a_login_shell() -> None:
    assert find_json('motd\n{\n "a": [1]\n}\n') == '{\n "a": [1]\n}'
    assert find_json('[1]\n{"a": 2}\n') == '{"a": 2}'
    assert not find_json('{"a": 2}\nbye\n')
    assert not find_json("")


@pytest.mark.parametrize(
    "output",
    ["[]", '{"summary": 5}', '{"hint": ["x"]}', "[" * 200_000 + "]", '{"summary": "x"' * 9 + "}"],
)
def test_a_strange_answer_is_one_row(output: str) -> None:
    answer = answer_of("a", 0, output, "")
    assert (answer.result, answer.code) == ("no answer", 3)
    assert answer.detail.startswith("its answer is not understood: ")


NAMES = st.sampled_from(["summary", "message", "error", "hint", "version"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)
)


@given(VALUES)
def test_any_json_is_an_answer_whose_texts_are_printable(value: object) -> None:
    answer = answer_of("a", 0, json.dumps(value), "\x1b]0;x\x07")
    assert (answer.detail + answer.remedy).isprintable()
    show_answers([answer])
    compare_builds([answer, answer_of("b", 0, '{"version": "1", "build": "2"}', "")])


def test_output_beyond_the_bound_is_not_kept(ssh_log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "OUTPUT_BYTES_MAX", 10)
    (answer,) = collect_answers(["plain", "--json"], ["up1"], Remote(), 60)
    assert answer.result == "no answer"
    assert len(ssh_log()) == 1


def test_an_error_without_words() -> None:
    answer = answer_of("a", 3, "", "")
    assert (answer.result, answer.code, answer.detail) == ("failed", 3, "exit code 3")
    assert answer_of("a", -9, "", "").code == 1
    assert answer_of("a", 255, "", "").remedy == "Try it by hand: ssh a"


# ---- what changes hosts ----


def changes_called(log: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(call["host"], call["command"].removeprefix("harpctl change --json")) for call in log]


def test_the_first_host_is_changed_alone(ssh_log: Log) -> None:
    assert run_harpctl("change", "-H", "up[1-3]").exit_code == 0
    assert changes_called(ssh_log())[0] == ("up1", "")
    assert sorted(changes_called(ssh_log())) == [("up1", ""), ("up2", ""), ("up3", "")]


def test_no_other_host_is_changed_after_a_failure(ssh_log: Log) -> None:
    result = run_harpctl("change", "-H", "off,up1,up2")
    assert (result.exit_code, len(ssh_log())) == (1, 1)
    assert "up2 not begun nothing was done here, as off, the first host, failed" in rows_of(result.stdout)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let there be a terminal on which everything is agreed to; return the questions."""
    questions: list[str] = []
    monkeypatch.setattr(fleet, "is_terminal", lambda: True)
    monkeypatch.setattr(fleet, "ask_for_yes", questions.append)
    return questions


def test_on_a_terminal_the_plan_and_one_question_come_first(ssh_log: Log, terminal: list[str]) -> None:
    result = run_harpctl("change", "-H", "up[1-2],right")
    assert terminal == ["Apply this on 3 hosts?"]
    assert result.stdout.startswith("up1, up2:\n+ a line\nright:\nNothing to do.\n")
    assert sorted(changes_called(ssh_log())[:3]) == [
        ("right", " --dry-run"),
        ("up1", " --dry-run"),
        ("up2", " --dry-run"),
    ]
    assert sorted(changes_called(ssh_log())[3:]) == [("right", ""), ("up1", ""), ("up2", "")]


def test_nothing_is_changed_where_the_answer_is_no(
    ssh_log: Log, terminal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(question: str) -> None:
        raise HarpError(question, "", ExitCode.REFUSED)

    monkeypatch.setattr(fleet, "ask_for_yes", refuse)
    assert run_harpctl("change", "-H", "up1,up2").exit_code == 5
    assert all("--dry-run" in call["command"] for call in ssh_log())
    del terminal


@pytest.mark.parametrize("hosts", ["right1,right2", "up1,off"])
def test_without_a_plan_nothing_is_asked(ssh_log: Log, terminal: list[str], hosts: str) -> None:
    assert run_harpctl("change", "-H", hosts).exit_code == (1 if "off" in hosts else 0)
    assert (len(ssh_log()), terminal) == (2, [])


@pytest.mark.parametrize("option", ["--yes", "--json", "--dry-run"])
def test_nothing_is_asked_with(ssh_log: Log, terminal: list[str], option: str) -> None:
    assert run_harpctl("change", "-H", "up1,up2", option).exit_code == 0
    its = " --dry-run" if option == "--dry-run" else ""
    assert (sorted(changes_called(ssh_log())), terminal) == ([("up1", its), ("up2", its)], [])


def test_a_dry_run_shows_the_plans(ssh_log: Log) -> None:
    result = run_harpctl("change", "-H", "up[1-2],right", "--dry-run")
    assert result.stdout.startswith("up1, up2:\n+ a line\nright:\nNothing to do.\n")
    assert len(ssh_log()) == 3


@pytest.mark.parametrize(
    ("hosts", "words", "code"),
    [
        ("right,up1", ["--dry-run"], 2),
        ("right", ["--dry-run"], 0),
        ("off,up1", ["--dry-run"], 1),
        ("up1,right", [], 0),
    ],
)
def test_a_change_to_be_made_is_no_failure(ssh_log: Log, hosts: str, words: list[str], code: int) -> None:
    result = run_harpctl("change", "-H", hosts, "--exit-code", *words)
    assert (result.exit_code, len(ssh_log())) == (code, len(hosts.split(",")))
    failed = [row.split()[0] for row in rows_of(result.stdout) if "failed" in row.split()]
    assert failed == [host for host in hosts.split(",") if host == "off"]


def test_the_exit_code_of_a_plan_does_not_end_what_is_asked(ssh_log: Log, terminal: list[str]) -> None:
    assert run_harpctl("change", "-H", "up1,up2", "--exit-code").exit_code == 0
    assert (len(ssh_log()), terminal) == (4, ["Apply this on 2 hosts?"])


@given(VALUES)
def test_any_json_is_a_plan_or_refused(value: object) -> None:
    with contextlib.suppress(HarpError):
        show_plans([answer_of("a", 0, json.dumps(value), "")])


# ---- a real sshd ----


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Provide an sshd on 127.0.0.1 with its own /run and keys, and an ssh in the PATH that knows them."""
    if SSHD is None or os.geteuid() != 0:
        pytest.skip("needs openssh-server and root")
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        pytest.skip("may not make a mount namespace")
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(key, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized")
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {(tmp_path / 'host.pub').read_text()}")
    lines = [
        *(f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {tmp_path}/host", f"PidFile {tmp_path}/pid"),
        *(f"AuthorizedKeysFile {tmp_path}/authorized", "PasswordAuthentication no", "StrictModes no"),
        *("PermitRootLogin yes", "UsePAM no"),
    ]
    (tmp_path / "sshd_config").write_text("\n".join(lines) + "\n")
    folder = tmp_path / "bin"
    folder.mkdir()
    real = shutil.which("ssh")
    assert real
    options = [
        *("-F", "none", "-p", str(port), "-i", str(tmp_path / "user"), "-o", "IdentitiesOnly=yes"),
        *("-o", f"UserKnownHostsFile={tmp_path}/known", "-o", "GlobalKnownHostsFile=/dev/null"),
    ]
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\nexec {real} {shlex.join(options)} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    serve = "mount -t tmpfs none /run && mkdir /run/sshd && exec " + shlex.join(
        [SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")]
    )
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", serve], stderr=subprocess.PIPE) as server:
        try:
            _wait_for(port, server)
            yield f"{getpass.getuser()}@127.0.0.1"
        finally:
            server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        assert server.poll() is None, server.stderr.read().decode() if server.stderr else ""
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            continue
        return
    pytest.fail("sshd did not listen in time")


def harpctl_program(folder: Path) -> Path:
    file = folder / "harpctl"
    root = Path(__file__).resolve().parents[2]
    line = f"PYTHONPATH={shlex.quote(str(root))} exec {shlex.quote(sys.executable)} -m harpctl"
    file.write_text(f'#!/bin/sh\n{line} "$@"\n')
    file.chmod(0o755)
    return file


def test_over_a_real_ssh(sshd: str, tmp_path: Path) -> None:
    (tmp_path / "image" / "etc").mkdir(parents=True)
    program = harpctl_program(tmp_path)
    words = ["status", "--root", str(tmp_path / "image"), "-H", sshd]
    result = run_harpctl(*words, "--remote", str(program), "--json")
    (row,) = json.loads(result.stdout)
    assert (row["result"], row["code"], row["answer"]["state"]) == ("failed", 1, "absent"), row
    result = run_harpctl(*words, "--remote", str(tmp_path / "none"), "--json")
    assert json.loads(result.stdout)[0]["result"] == "no harpctl"


def test_a_file_streamed_over_a_real_ssh(sshd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "harp_setup.sh"
    file.write_text('printf \'{"summary": "%s, %s"}\' "$1" "$2"\nexit 3\n')
    monkeypatch.setenv(fleet.DIST_VARIABLE, str(file))
    result = run_harpctl("plain", "-H", sshd)
    assert (result.exit_code, f"{sshd} failed plain, --json" in rows_of(result.stdout)) == (3, True), result.stdout


def test_an_unknown_host_key_is_never_taken(sshd: str, tmp_path: Path) -> None:
    (tmp_path / "known").write_text("")
    result = run_harpctl("plain", "-H", sshd)
    assert (result.exit_code, "Host key verification failed." in result.stdout) == (4, True)
    assert (tmp_path / "known").read_text() == ""


def test_an_error_that_came_as_json() -> None:
    output = '{"ok": false, "error": "No GPU was found.", "hint": "harpctl setup --gpus 8", "exit_code": 4}\n'
    answer = answer_of("gpu1", 4, output, "harpctl: No GPU was found.\n  harpctl setup --gpus 8\n")
    assert (answer.result, answer.code) == ("failed", 4)
    assert answer.detail == "No GPU was found."
    assert answer.remedy == "harpctl setup --gpus 8"
