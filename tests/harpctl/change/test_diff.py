# SPDX-License-Identifier: Apache-2.0
"""`--dry-run` prints a diff that patch takes, with modes, links and commands in their places."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harpctl.change.diff import file_diff, render_diff
from harpctl.change.state import Absent, File, digest_of
from harpctl.change.steps import Group, Plan, RemoveFile, Rename, Run, WriteFile
from harpctl.host.host import Host
from tests.draws import draw_examples
from tests.harpctl.change.site import make_host, make_plan, make_tree, set_up, take_snapshot

EXPECTED = """\
# kernel arguments
--- a/etc/default/grub
+++ b/etc/default/grub
@@ -1 +1,2 @@
 GRUB_CMDLINE_LINUX="quiet"
+hugepages=50
$ update-grub
$ add-entry
# files
--- a/etc/real.conf
+++ b/etc/real.conf
@@ -1 +1 @@
-old
+new
new file /usr/local/tfabric/tools/config/ztcp0.conf, mode 0600
--- /dev/null
+++ b/usr/local/tfabric/tools/config/ztcp0.conf
@@ -0,0 +1 @@
+[eni]
new file /usr/local/tfabric/tools/config/ztcp1.conf, mode 0644
--- /dev/null
+++ b/usr/local/tfabric/tools/config/ztcp1.conf
@@ -0,0 +1 @@
+[eni]\r
old mode of /etc/script: 0644
new mode of /etc/script: 0755
remove the file /etc/old.conf
--- a/etc/old.conf
+++ /dev/null
@@ -1 +0,0 @@
-\ufffd\ufffd latin
\\ No newline at end of file
remove the directory /etc/empty
new link /etc/harp/new-link -> ../default/grub
old link /etc/link -> first
new link /etc/link -> second
new link /etc/taken -> /etc/real.conf
--- a/etc/taken
+++ /dev/null
@@ -1 +0,0 @@
-a file where a link shall be
rename from /mnt/plugin.so
rename to /usr/lib/plugins/libnccl-net.so
# now
= 50 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages
# rule
$ add-rule
# unit
new file /etc/systemd/system/harp.service, mode 0644
--- /dev/null
+++ b/etc/systemd/system/harp.service
@@ -0,0 +1 @@
+[Service]
$ reload
"""


def test_every_kind_of_step(tmp_path: Path) -> None:
    make_tree(tmp_path)
    host = make_host(tmp_path)
    before = take_snapshot(tmp_path)
    assert render_diff(make_plan(host), host) == EXPECTED
    assert take_snapshot(tmp_path) == before


def test_nothing_to_do(tmp_path: Path) -> None:
    make_tree(tmp_path)
    host = make_host(tmp_path)
    set_up(host)
    assert render_diff(make_plan(host), host) == ""


def test_later_steps_see_what_earlier_ones_do(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    host = Host(tmp_path)
    steps = (
        WriteFile(path="/a", data=b"2\n"),
        Rename(path="/a", to="/b"),
        RemoveFile(path="/c"),
        WriteFile(path="/b", data=b"3\n"),
        Run(argv=("sh", "-c", "echo 'a b'")),
    )
    shown = render_diff(Plan(groups=(Group(name="g", steps=steps),)), host)
    assert shown == (
        "# g\n"
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n"
        "rename from /a\nrename to /b\n"
        "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-2\n+3\n"
        """$ sh -c 'echo '"'"'a b'"'"''\n"""
    )


TEXT = st.lists(st.sampled_from(["a", "b", "c\r", "é", " \x0c", "", "\x1c\u2028"]), max_size=12).map("\n".join)


@pytest.mark.skipif(not shutil.which("patch"), reason="needs patch")
@draw_examples(60)
@given(old=TEXT, new=TEXT, last=st.sampled_from(["", "\n"]))
def test_patch_understands_it(tmp_path_factory: pytest.TempPathFactory, old: str, new: str, last: str) -> None:
    root = tmp_path_factory.mktemp("tree")
    (root / "file").write_bytes(old.encode())
    wanted = (new + last).encode()
    plan = Plan(groups=(Group(name="g", steps=(WriteFile(path="/file", data=wanted),)),))
    diff = render_diff(plan, Host(root))
    assert bool(diff) == (old.encode() != wanted)
    if diff:
        argv = ["patch", "-p1", "--binary", "--quiet", "--posix"]
        subprocess.run(argv, cwd=root, input=diff.encode(), check=True, stdout=subprocess.DEVNULL)
    found = (root / "file").read_bytes() if (root / "file").exists() else b""
    assert found == wanted


def test_binary_files_are_not_shown() -> None:
    data = b"\x7fELF\0"
    diff = file_diff("/x.so", (Absent(), b""), (File(sha256=digest_of(data), mode=0o755), data))
    assert re.fullmatch(r"new file .*\nBinary files /dev/null and b/x.so differ \(0 bytes, then 5\)\n", diff)
