# SPDX-License-Identifier: Apache-2.0
"""Checks of the hugepages: there, as many as requested, where they are needed, and usable by this process."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import CheckResult, check, edit_command, fail, skip, warn
from harpctl.facts.model import CgroupPages
from harpctl.kargs.cmdline import reserved_pages
from harpctl.setup.choose import Choice
from harpctl.setup.mount import MOUNT_POINT, MOUNT_UNIT, fstab_mounts, mount_now, unit_mounts
from harpctl.setup.page_demand import pages_used
from harpctl.setup.pages import conflicting_setting, pages_for
from harpctl.units import GIB, size_name


def wanted_count(context: Context) -> int:
    """Return how many pages the contract wants for this host's GPUs: 5 GiB each and 10 GiB more."""
    return pages_for(len(context.facts.gpus), context.page_size or GIB)


def cgroup_limit(context: Context) -> CgroupPages | None:
    """Return the hugetlb limit on pages of the wanted size; None when there is none."""
    found = (one for one in context.facts.limits.hugetlb if one.size == context.page_size and one.limit >= 0)
    return next(found, None)


def requested_pages(context: Context, cmdline: str) -> int:
    """Return how many pages of the wanted size a kernel command line requests."""
    return reserved_pages(cmdline, context.facts.memory.kernel_default).get(context.page_size, 0)


def next_boot(context: Context) -> int:
    """Return how many pages every entry of the boot menu brings at least; 0 without entries."""
    return min((requested_pages(context, entry.args) for entry in context.facts.boot.entries), default=0)


def _comes_at_boot(context: Context) -> bool:
    """Return whether the next boot is what is asked about, and that it brings pages."""
    return context.options.after_boot and next_boot(context) > 0


@check(
    "hugepages.present",
    "The kernel has hugepages of the size that the conf files ask for",
    needs.wanted_pages,
)
def check_present(context: Context) -> Iterator[CheckResult]:
    """Look at the total of the wanted size; a directory tree has only its boot entries."""
    if _comes_at_boot(context) or context.pages.total:
        return
    size, coming = size_name(context.page_size), next_boot(context)
    if coming == 0:
        now = " --now" if context.is_running else ""
        yield fail(f"There are no hugepages of {size}.", f"harpctl setup{now}")
    elif context.is_running:
        yield fail(f"There are no hugepages of {size} yet; the next boot brings {coming}.", "reboot")


def _used_count(context: Context) -> int:
    """Return how many pages a rank for each GPU takes, on the interfaces and cores of the conf files."""
    choices = [
        Choice(number=number, eni=eni, cores=conf.cores or ())
        for number, (_path, conf, eni) in enumerate(context.pairs)
    ]
    confs = {conf.interface: conf for _path, conf in context.confs}
    return pages_used(choices, confs, len(context.facts.gpus), context.page_size)


@check("hugepages.enough", "There are hugepages for a rank on each GPU", needs.gpu, needs.pages, validates=False)
def check_enough(context: Context) -> Iterator[CheckResult]:
    """Compare the total with what the ranks take; smaller pages do as well, so that it warns."""
    total, used = context.pages.total, _used_count(context)
    if total < used and not _comes_at_boot(context):
        yield warn(
            f"{total} pages of {size_name(context.page_size)} for {len(context.facts.gpus)} GPUs, whose ranks"
            f" take {used}; processes that come last get smaller pages.",
            "harpctl setup --hugepages auto --now",
        )


@check(
    "hugepages.promised",
    "The kernel could reserve all the pages that its command line asks for",
    needs.machine,
    needs.wanted_pages,
)
def check_promised(context: Context) -> Iterator[CheckResult]:
    """Compare the total with the running command line."""
    total, reserved = context.pages.total, requested_pages(context, context.facts.boot.cmdline)
    if total < reserved:
        yield fail(
            f"The command line asks for {reserved} pages of {size_name(context.page_size)}, and the kernel"
            f" has {total}: memory was too small or too fragmented at boot.",
            *([f"harpctl setup --hugepages {total}"] if total else ["harpctl setup --now"]),
        )


@check(
    "hugepages.nodes",
    "Each NUMA node with an ENI has hugepages of its own",
    needs.pair,
    needs.pages,
    validates=False,
)
def check_nodes(context: Context) -> Iterator[CheckResult]:
    """Look at the pages of each node on which an ENI of a conf file sits."""
    nodes = context.facts.memory.nodes
    if len(nodes) < 2:
        return
    used = {eni.node: eni.name for eni in context.enis if eni.node >= 0}
    for node in nodes:
        here = sum(one.total for one in node.hugepages if one.size == context.page_size)
        if node.id in used and here == 0:
            yield warn(
                f"Node {node.id} has none, so {used[node.id]} works in memory of another node.",
                "harpctl setup --now",
            )


@check("hugepages.free", "Some hugepages are free", needs.machine, needs.pages, validates=False)
def check_free(context: Context) -> Iterator[CheckResult]:
    """Look for pages that nobody uses."""
    have = context.pages
    if have.free == 0:
        yield warn(
            f"All {have.total} pages of {size_name(have.size)} are in use, by a job or by something else.",
            f"grep -l hugepages /proc/[0-9]*/maps; ls -l {MOUNT_POINT}",
        )


@check("hugepages.cgroup", "The cgroup lets this process use hugepages", needs.machine, needs.wanted_pages)
def check_cgroup(context: Context) -> Iterator[CheckResult]:
    """Look at the hugetlb limit of the cgroup: a page over it is refused, whatever is free."""
    limit = cgroup_limit(context)
    if limit is None:
        return
    size = size_name(limit.size)
    name, pages_gib = ("1Gi" if limit.size == GIB else "2Mi"), wanted_count(context) * limit.size // GIB
    repair = f'set resources.limits["hugepages-{name}"] of the pod to "{pages_gib}Gi"'
    if limit.limit < limit.size:
        yield fail(f"The cgroup's limit on pages of {size} is {limit.limit} bytes: none.", repair)
    elif limit.limit - limit.usage < limit.size:
        yield fail(f"The cgroup has used up its limit on pages of {size} ({limit.limit} bytes).", repair)


@check("hugepages.usable", "A hugepage can be mapped and written", needs.machine, needs.pages)
def check_usable(context: Context) -> Iterator[CheckResult]:
    """Map and populate one page in a child process."""
    have = context.pages
    if have.free == 0:
        yield skip("None is free.")
    elif error := context.machine.use_page(have.size):
        limit = cgroup_limit(context)
        why = f"; the cgroup's limit is {limit.limit} bytes" if limit else ""
        yield fail(
            f"{have.free} pages of {size_name(have.size)} are free, but using one failed: {error}{why}.",
            "docker run ... (without a hugetlb limit), or hugepages limits in the pod's resources",
        )


@check("hugepages.sysctl", "No file of sysctl changes the number of hugepages at boot", needs.wanted_pages)
def check_sysctl(context: Context) -> Iterator[CheckResult]:
    """Look for counts of pages of the default size, which sysctl sets after the kernel has reserved them."""
    count = next_boot(context)
    if count and (setting := conflicting_setting(context.facts, count)):
        yield fail(
            f"{setting.path}:{setting.line}: {setting.name} = {setting.value} replaces the {count} pages that"
            " the kernel arguments reserve.",
            edit_command(setting.path, "--comment", str(setting.line)),
        )


@check("hugepages.processor", "The host has pages of the size that the conf files ask for", needs.wanted_pages)
def check_processor(context: Context) -> Iterator[CheckResult]:
    """Look for 1 GiB pages where they are wanted."""
    memory = context.facts.memory
    if context.page_size == GIB and memory.has_1g is False:
        yield fail("This host offers no 1 GiB pages.", "harpctl setup --page-size 2M")


@check("hugepages.mount", f"A hugetlbfs is mounted on {MOUNT_POINT}", needs.machine, needs.wanted_pages)
def check_mount(context: Context) -> Iterator[CheckResult]:
    """Look for the mount that containers are given."""
    if context.mount is not None:
        return
    if context.facts.system.container:
        yield fail(
            f"{MOUNT_POINT} of the host is not mounted into this container.",
            f"docker run ... -v {MOUNT_POINT}:{MOUNT_POINT}",
        )
        return
    step = mount_now(context.page_size)
    has_place = context.host.is_dir(MOUNT_POINT) and context.pages.total > 0
    yield fail(
        f"No hugetlbfs is mounted on {MOUNT_POINT}.", shlex.join(step.argv), steps=[step] if has_place else ()
    )


@check(
    "hugepages.mount_size",
    f"The hugetlbfs on {MOUNT_POINT} has the size that the conf files ask for",
    needs.mount,
)
def check_mount_size(context: Context) -> Iterator[CheckResult]:
    """Compare the page size of the mount with the wanted one."""
    size = context.mount.page_size if context.mount else 0
    if size not in {0, context.page_size}:
        yield warn(
            f"It has pages of {size >> 20} MiB, and {context.page_size >> 20} MiB are wanted.",
            f"umount {MOUNT_POINT}",
            shlex.join(mount_now(context.page_size).argv),
        )


@check("hugepages.mount_writable", f"The hugetlbfs on {MOUNT_POINT} can be written", needs.mount)
def check_mount_writable(context: Context) -> Iterator[CheckResult]:
    """Look for a mount that is read-only."""
    if context.mount and not context.mount.is_writable:
        yield fail("It is mounted read-only.", f"mount -o remount,rw {MOUNT_POINT}")


@check("hugepages.mount_kept", f"{MOUNT_POINT} is mounted again at the next boot", needs.host, needs.wanted_pages)
def check_mount_kept(context: Context) -> Iterator[CheckResult]:
    """Look for systemd's unit, or a line of fstab."""
    if not (fstab_mounts(context.sources) or unit_mounts(context.sources)):
        yield fail(f"Neither systemd's {MOUNT_UNIT} nor /etc/fstab mounts it.", "harpctl setup")
