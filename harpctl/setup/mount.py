# SPDX-License-Identifier: Apache-2.0
"""The hugetlbfs on /dev/hugepages: mounted, and mounted again at every boot."""

from __future__ import annotations

from harpctl.change.steps import AnyStep, Group, Run, WriteFile
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.memory import page_size_of
from harpctl.facts.model import Facts
from harpctl.facts.sources import Sources
from harpctl.setup.options import SetupOptions

MOUNT_POINT = "/dev/hugepages"
MOUNT_UNIT = "dev-hugepages.mount"
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
FSTAB = "/etc/fstab"
KIND = "hugetlbfs"


def unit_mounts(sources: Sources) -> bool:
    """Return whether systemd's own unit mounts it at boot, with the kernel's default page size.

    One that is masked is a link to /dev/null, and holds nothing.
    """
    paths = (f"{folder}/{MOUNT_UNIT}" for folder in UNIT_FOLDERS)
    return bool(sources.read_bytes(next(filter(sources.exists, paths), "")))


def _fstab_lines(text: str) -> list[int]:
    """Return the indexes of fstab's lines that mount something on the mount point."""
    found = []
    for index, line in enumerate(text.splitlines()):
        words = line.split()
        if len(words) >= 3 and not words[0].startswith("#") and words[1].rstrip("/") == MOUNT_POINT:
            found.append(index)
    return found


def fstab_mounts(sources: Sources) -> bool:
    """Return whether fstab mounts a hugetlbfs there at boot."""
    text = sources.read_text(FSTAB) or ""
    return any(text.splitlines()[index].split()[2] == KIND for index in _fstab_lines(text))


def mount_now(page_size: int) -> Run:
    """Return the step that mounts it on the running host."""
    argv = ("mount", "-t", KIND, "-o", _mount_option(page_size), KIND, MOUNT_POINT)
    return Run(argv=argv, undo=("umount", MOUNT_POINT), always=True, fleeting=True, why="a hugetlbfs now")


def _mount_option(page_size: int) -> str:
    return f"pagesize={page_size >> 20}M"


def fstab_with_mount(text: str, page_size: int) -> str:
    """Return fstab with exactly one line that mounts the page size on /dev/hugepages; else unchanged.

    Raises where something else than a hugetlbfs is mounted there.
    """
    lines = text.splitlines(keepends=True)
    found = _fstab_lines(text)
    for index in found:
        words = lines[index].split()
        if words[2] != KIND:
            raise HarpError(
                f"{FSTAB}:{index + 1}: mounts a {words[2]} on {MOUNT_POINT}, where HARP's hugetlbfs belongs.",
                "Take that line out, then run again: harpctl setup",
                ExitCode.REFUSED,
            )
    if len(found) == 1 and page_size_of([*lines[found[0]].split(), ""][3]) == page_size:
        return text
    kept = [line for index, line in enumerate(lines) if index not in found]
    end = "\r\n" if text.endswith("\r\n") else "\n"
    if kept and not kept[-1].endswith("\n"):
        kept[-1] += end
    return "".join(kept) + f"{KIND} {MOUNT_POINT} {KIND} {_mount_option(page_size)},nofail 0 0{end}"


def plan_mount(facts: Facts, sources: Sources, options: SetupOptions) -> Group:
    """Plan the mount of hugepages: systemd's unit keeps it where that is in force; else a line of fstab does.

    The unit mounts pages of the kernel's default size, which the kernel arguments set: without them fstab
    has to name the size.
    """
    steps: list[AnyStep] = []
    text = sources.read_text(FSTAB) or ""
    if _fstab_lines(text) or not (unit_mounts(sources) and options.kernel_args):
        steps.append(
            WriteFile(
                path=FSTAB,
                data=fstab_with_mount(text, options.page_size).encode("utf-8", "surrogateescape"),
                why=f"a hugetlbfs on {MOUNT_POINT} at every boot",
            )
        )
    mounted = any(mount.path == MOUNT_POINT for mount in facts.memory.mounts)
    if sources.runs_commands and not mounted and any(p.size == options.page_size for p in facts.memory.hugepages):
        if not sources.exists(MOUNT_POINT):
            steps.append(
                Run(
                    argv=("mkdir", "-m", "755", MOUNT_POINT),
                    undo=("rmdir", MOUNT_POINT),
                    always=True,
                    fleeting=True,
                )
            )
        steps.append(mount_now(options.page_size))
    return Group(name="hugetlbfs", steps=tuple(steps))
