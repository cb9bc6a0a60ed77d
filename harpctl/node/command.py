# SPDX-License-Identifier: Apache-2.0
"""`harpctl node` and `harpctl cdi`: HARP for the containers of this node."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import msgspec

from harpctl.build_info import build_version
from harpctl.change.apply import apply_plan
from harpctl.change.os_errors import require_root
from harpctl.change.rollback import kept_text, recover_interrupted, roll_back
from harpctl.command_line import FILE, command, json_option, option, plugin_option
from harpctl.console import OUT, ConsoleProgress, Progress, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host, open_host
from harpctl.node.cdi import describe_folder
from harpctl.node.cluster import LABEL, Cluster, is_wanted, label_value, set_label
from harpctl.node.profile import FOLDER, plan_node, read_settings, require_absolute
from harpctl.plugin.source import find_source

folder_option = option("--dir", "folder", metavar="DIR", default=FOLDER, help="The folder of the node.")
node_root_option = option("--root", metavar="DIR", type=FILE, help="Where the node's directories are mounted.")


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `node --json`."""

    ok: bool = True
    version: str
    folder: str
    changed: bool
    transaction: str  # its id for `harpctl rollback`; "" when nothing changed


def install_node(
    host: Host, folder: str, words: Sequence[str], plugin: Path | None, progress: Progress
) -> Installed:
    """Put library and profile into the folder, wholly or not at all."""
    require_absolute(folder)
    settings = read_settings(words, folder)
    recover_interrupted(host, progress=progress)
    plan = plan_node(host, find_source(host, plugin), folder, settings)
    if not plan.is_empty:
        tree = "DIR" if folder == FOLDER else folder
        require_root(
            host,
            f"Without root, into a directory of yours: mkdir -p {tree} && harpctl node --root {tree};"
            f" containers mount {tree}{FOLDER} as {FOLDER}.",
        )
    transaction = apply_plan(plan, host, what="node", progress=progress)
    return Installed(version=build_version(), folder=folder, changed=bool(transaction), transaction=transaction)


def clean_up_node(host: Host, cluster: Cluster, node: str, daemonset: tuple[str, str], progress: Progress) -> None:
    """Remove label and files where the DaemonSet no longer selects this node. Raises HarpError."""
    if is_wanted(cluster, node, *daemonset):
        progress.print("The DaemonSet still exists; HARP stays installed.")
        return
    failure: HarpError | None = None
    try:
        set_label(cluster, node, None)
    except HarpError as error:
        failure = error  # the files go all the same
    report = roll_back(host, progress=progress)
    if report.kept:
        raise HarpError(f"Not everything could be removed: {kept_text(report.kept)}.", "Remove it by hand.")
    progress.print("The DaemonSet was deleted; what it installed was removed.")
    if failure is not None:
        raise failure


def _parse_daemonset(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise HarpError(f"{text!r} is not NAMESPACE/NAME.", "Write --daemonset kube-system/harp.", ExitCode.USAGE)
    return namespace, name


@command()
@folder_option
@option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A variable for NCCL, RCCL or HARP; repeatable.",
)
@option("--node", "name", metavar="NAME", default="", help=f"Label this Kubernetes node: {LABEL}.")
@option(
    "--daemonset",
    metavar="NAMESPACE/NAME",
    default="",
    help="With --node: stay, and undo all when it is deleted.",
)
@plugin_option
@node_root_option
@json_option
def node(
    *,
    folder: str,
    settings: tuple[str, ...],
    name: str,
    daemonset: str,
    plugin: Path | None,
    root: Path | None,
    as_json: bool,
) -> None:
    """Put library and environment profile where containers of this node mount them.

    They become DIR/lib/libnccl-net-harp.so and DIR/nccl.conf, journalled as all changes: `harpctl rollback`
    removes them. As the pod of a DaemonSet it also labels the node, waits for SIGTERM, and then removes all
    if the DaemonSet was deleted, or no longer selects the node; else, as in an update, the files stay. It
    needs docs/how-to/deploy/access.yaml for that.
    """
    if bool(name) != bool(daemonset):
        raise HarpError("--node and --daemonset belong together.", "Give both, or none.", ExitCode.USAGE)
    progress = ConsoleProgress()
    host = open_host(root)
    place = _parse_daemonset(daemonset) if daemonset else None
    cluster = Cluster(Host()) if place else None
    found = install_node(host, folder, settings, plugin, progress)
    if as_json:
        print_json(found)
    else:
        state = "is installed" if found.changed else "is installed already"
        OUT.print(f"HARP {found.version} {state}: {folder}.", markup=False)
    if place is None or cluster is None:
        return
    try:
        set_label(cluster, name, label_value(found.version))
        progress.print(f"Node {name} has the label {LABEL}.")
        while True:
            signal.pause()
    except KeyboardInterrupt:
        clean_up_node(host, cluster, name, place, progress)


@command()
@folder_option
@node_root_option
@json_option
def cdi(*, folder: str, root: Path | None, as_json: bool) -> None:
    """Print a CDI specification of what `harpctl node` has installed, as the device harp/net=all.

    Container runtimes read it from /etc/cdi: harpctl cdi > /etc/cdi/harp.json
    """
    del as_json
    require_absolute(folder)
    print_json(describe_folder(open_host(root), folder))
