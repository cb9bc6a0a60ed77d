# SPDX-License-Identifier: Apache-2.0
"""A small host as a directory tree, commands that only write into it, and a plan with every kind of step."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harpctl.change import apply as applying
from harpctl.change.rollback import RollbackResult, recover_interrupted, roll_back
from harpctl.change.steps import Group, MakeLink, Plan, RemoveFile, Rename, Run, SetControl, WriteFile
from harpctl.console import NoProgress
from harpctl.host.host import Host
from harpctl.host.runner import TIMEOUT_S, Completed

GRUB = "/etc/default/grub"
GRUB_CFG = "/boot/grub/grub.cfg"
GRUB_CFG_NEW = "/boot/grub/grub.new"
ENTRIES = "/boot/loader/entries"
PAGES = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
CONF = "/usr/local/tfabric/tools/config/ztcp0.conf"
ARGUMENTS = b"hugepages=50\n"
HOME = "/var/lib/harp"

Snapshot = dict[str, tuple[str, int, bytes]]


class Commands:
    """The commands of the host: what they do is a function of the tree, and stays in the tree."""

    runs = True

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ran: list[str] = []
        self.failing: set[str] = set()

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        del timeout_s
        name = argv[0]
        self.ran.append(name)
        if name in self.failing:
            return Completed(tuple(argv), 1, "", f"{name}: it is broken")
        return Completed(tuple(argv), *getattr(self, name.replace("-", "_"))())

    def update_grub(self) -> tuple[int]:
        text = b"# generated\n" + (self.root / "etc/default/grub").read_bytes()
        config = self.root / "boot/grub/grub.cfg"
        new = config.with_suffix(".new")
        new.write_bytes(text[:9])
        new.write_bytes(text)
        new.chmod(0o444)
        new.rename(config)
        return (0,)

    def add_entry(self) -> tuple[int]:
        entries = self.root / "boot/loader/entries"
        (entries / "harp.conf").write_text("title HARP\n")
        (entries / "first.conf").write_text("title first, changed\n")
        return (0,)

    def add_rule(self) -> tuple[int]:
        (self.root / "run/rule").write_text("from 10.0.1.5 lookup 7700\n")
        return (0,)

    def del_rule(self) -> tuple[int, str, str]:
        if not (self.root / "run/rule").exists():
            return 2, "", "RTNETLINK answers: No such file or directory"
        (self.root / "run/rule").unlink()
        return 0, "", ""

    def reload(self) -> tuple[int]:
        unit = self.root / "etc/systemd/system/harp.service"
        (self.root / "run/loaded").write_bytes(unit.read_bytes() if unit.exists() else b"none\n")
        return (0,)


def make_tree(root: Path, *, var_lib: str = "var/lib") -> None:
    """Write the host; `var_lib` is what there is of /var/lib."""
    files = {
        "etc/default/grub": (b'GRUB_CMDLINE_LINUX="quiet"\n', 0o644),
        "boot/grub/grub.cfg": (b"# generated long ago\n", 0o444),
        "boot/loader/entries/first.conf": (b"title first\n", 0o640),
        "etc/real.conf": (b"old\n", 0o600),
        "etc/old.conf": (b"\xff\xfe latin", 0o640),
        "etc/script": (b"#!/bin/sh\n", 0o644),
        "etc/taken": (b"a file where a link shall be\n", 0o604),
        "mnt/plugin.so": (bytes(range(256)) * 40, 0o755),
        "proc/sys/kernel/random/boot_id": (b"boot-1\n", 0o444),
        "run/loaded": (b"none\n", 0o644),
        PAGES[1:]: (b"0\n", 0o644),
    }
    for path, (data, mode) in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        target.chmod(mode)
    (root / "etc/systemd/system").mkdir(parents=True)
    (root / "usr/local").mkdir(parents=True)
    (root / "etc/linked.conf").symlink_to("/etc/real.conf")
    (root / "etc/link").symlink_to("first")
    (root / "etc/empty").mkdir(mode=0o750)
    if var_lib:
        (root / var_lib).mkdir(parents=True)


def make_host(root: Path) -> Host:
    """Return the tree as a host with commands."""
    return Host(root, Commands(root))


def commands_of(host: Host) -> Commands:
    """Return the commands of a host of make_host."""
    runner = host._runner
    assert isinstance(runner, Commands)
    return runner


def make_plan(host: Host) -> Plan:
    """Plan as a planner does, from what is there now; every kind of step is in it."""
    grub = host.read_bytes(GRUB) or b""
    if not grub.endswith(ARGUMENTS):
        grub += ARGUMENTS
    rule = Run(argv=("add-rule",), undo=("del-rule",), always=True, fleeting=True)
    service = "/etc/systemd/system/harp.service"
    return Plan(
        groups=(
            Group(
                name="kernel arguments",
                steps=(
                    WriteFile(path=GRUB, data=grub),
                    Run(argv=("update-grub",), rewrites=(GRUB_CFG, GRUB_CFG_NEW), again=("update-grub",)),
                    Run(argv=("add-entry",), rewrites=(f"{ENTRIES}/*.conf",)),
                ),
            ),
            Group(
                name="files",
                steps=(
                    WriteFile(path="/etc/linked.conf", data=b"new\n"),
                    WriteFile(path=CONF, data=b"[eni]\n", mode=0o600),
                    WriteFile(path="/usr/local/tfabric/tools/config/ztcp1.conf", data=b"[eni]\r\n"),
                    WriteFile(path="/etc/script", data=b"#!/bin/sh\n", mode=0o755),
                    RemoveFile(path="/etc/old.conf"),
                    RemoveFile(path="/etc/empty"),
                    MakeLink(path="/etc/harp/new-link", target="../default/grub"),
                    MakeLink(path="/etc/link", target="second"),
                    MakeLink(path="/etc/taken", target="/etc/real.conf"),
                    Rename(path="/mnt/plugin.so", to="/usr/lib/plugins/libnccl-net.so"),
                ),
            ),
            Group(name="now", steps=(SetControl(path=PAGES, value="50", may_fall_short=True),)),
            Group(name="rule", steps=() if host.exists("/run/rule") else (rule,)),
            Group(
                name="unit",
                steps=(
                    Run(undo=("reload",)),
                    WriteFile(path=service, data=b"[Service]\n"),
                    Run(argv=("reload",)),
                ),
            ),
        )
    )


def make_small_plan(_host: Host) -> Plan:
    """Plan one file."""
    return Plan(groups=(Group(name="file", steps=(WriteFile(path=CONF, data=b"[eni]\n"),)),))


def set_up(host: Host, plan: Callable[[Host], Plan] = make_plan) -> str:
    """Do what `harpctl setup` does: recover, plan, apply."""
    recover_interrupted(host, progress=NoProgress())
    return applying.apply_plan(plan(host), host, what="setup", progress=NoProgress())


def undo_all(host: Host, **options: Any) -> RollbackResult:
    """Roll back with nobody watching."""
    return roll_back(host, progress=NoProgress(), **options)


def take_snapshot(root: Path, *, journal: bool = True) -> Snapshot:
    """Read a whole tree: kind, mode and content of everything; without /var/lib/harp if so wished."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = "/" + str(path.relative_to(root))
        if not journal and (name == HOME or name.startswith(f"{HOME}/")):
            continue
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[name] = (stat.filemode(status.st_mode), stat.S_IMODE(status.st_mode), content)
    return found


# ---- being killed ----

CHANGING = {"rename", "remove", "mkdir", "rmdir", "chmod", "chown", "symlink", "truncate", "setxattr"}
AUDITED = {f"os.{name}" for name in CHANGING}


def run_killed(action: Callable[[], object], at: int) -> bool:
    """Run an action in a child that kills itself before its change number `at`; return whether it got there.

    Every call that changes a file system counts. SIGKILL leaves the child no time to clean up.
    """
    pid = os.fork()
    if pid == 0:
        _die_at(at)
        try:
            action()
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 70)
    _pid, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def _die_at(at: int) -> None:
    left = at
    write = os.write

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        if event in AUDITED or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            count()

    def write_in_parts(fd: int, data: bytes) -> int:
        count()
        half = len(data) // 2
        write(fd, data[:half])
        count()
        return half + write(fd, data[half:])

    os.write = write_in_parts  # type: ignore[assignment]
    sys.addaudithook(on_event)
