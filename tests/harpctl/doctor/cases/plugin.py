# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of the plugin."""

from __future__ import annotations

from msgspec.structs import replace

from harpctl.facts.model import Library
from harpctl.facts.plugin_files import Copy
from harpctl.plugin.search import Taken
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import HARP, LIBRARY, World, make_copy

PARKED = "/usr/lib/x86_64-linux-gnu/bak.libnccl-net.so"
SECOND = "/usr/lib/x86_64-linux-gnu/libnccl-net-harp.so"


@case("plugin.installed", "warn", "No libnccl-net.so is in the loader's path", "harpctl install")
def not_installed(world: World) -> None:
    world.copies = ()


@case("plugin.installed", "warn", f"disabled as {PARKED}", "harpctl enable")
def turned_off(world: World) -> None:
    world.copies = (make_copy(PARKED, "bak."),)


@case(
    "plugin.first",
    "fail",
    "NCCL takes /opt/x/libnccl-net.so, which is the plugin AWS Libfabric, as it has the plain name and"
    f" NCCL_NET_PLUGIN is not set; HARP's, {LIBRARY}, is behind it",
    "harpctl install --name harp",
)
def another_plugin_first(world: World) -> None:
    other = make_copy("/opt/x/libnccl-net.so", elf=replace(HARP, name="AWS Libfabric"))
    world.copies = (other, make_copy())


@case(
    "plugin.first",
    "fail",
    f"which is the plugin AWS Libfabric, as it has the plain name and NCCL_NET_PLUGIN is not set;"
    f" HARP is beside it as {SECOND}",
    "export NCCL_NET_PLUGIN=harp",
)
def beside_another_plugin(world: World) -> None:
    other = make_copy("/opt/x/libnccl-net.so", elf=replace(HARP, name="AWS Libfabric"))
    world.copies = (other, replace(make_copy(SECOND), name="libnccl-net-harp.so"))


def _make_taken(copy: Copy | None, why: str) -> tuple[Taken, ...]:
    library = Library(path="/opt/env/lib/libnccl.so.2", version="2.21.5")
    return (Taken(library=library, loader="/opt/env/lib/libtorch_cuda.so", copy=copy, why=why),)


OTHER = make_copy("/opt/env/lib/libnccl-net.so", elf=replace(HARP, name="AWS Libfabric"))


@case(
    "plugin.search",
    "fail",
    "NCCL 2.21.5 (/opt/env/lib/libnccl.so.2, loaded by /opt/env/lib/libtorch_cuda.so) takes"
    " /opt/env/lib/libnccl-net.so, which is the plugin AWS Libfabric, by the RPATH of x.",
    "harpctl install --name harp",
    "export NCCL_NET_PLUGIN=harp",
)
def another_plugin_in_the_environment(world: World) -> None:
    world.taken = _make_taken(OTHER, "by the RPATH of x")


@case("plugin.search", "fail", "by LD_LIBRARY_PATH.", "export NCCL_NET_PLUGIN=harp")
def another_plugin_in_the_library_path(world: World) -> None:
    world.taken = _make_taken(OTHER, "by LD_LIBRARY_PATH")
    world.copies = (make_copy(), replace(make_copy(SECOND), name="libnccl-net-harp.so"))


@case("plugin.search", "fail", "takes no plugin: the loader's cache does not have it.", "ldconfig")
def old_cache(world: World) -> None:
    world.taken = _make_taken(None, "")


@case("plugin.installed", "fail", f"HARP is installed as {SECOND}", "export NCCL_NET_PLUGIN=harp")
def only_the_second_name(world: World) -> None:
    world.copies = (replace(make_copy(SECOND), name="libnccl-net-harp.so"),)


@case(
    "plugin.installed",
    "warn",
    "NCCL takes /opt/net.so by NCCL_NET_PLUGIN=/opt/net.so (/root/.nccl.conf) alone.",
    "harpctl install --name plain",
)
def only_for_one_user(world: World) -> None:
    world.write("/root/.nccl.conf", "NCCL_NET_PLUGIN=/opt/net.so\n")
    world.copies = (replace(make_copy("/opt/net.so"), name="net.so", aliases=("/opt/net.so",)),)


@case("nccl.net_plugin", "fail", "look for harp and libnccl-net-harp.so", "harpctl install --name harp")
def second_name_is_not_there(world: World) -> None:
    world.write("/etc/nccl.conf", "NCCL_NET_PLUGIN=harp\n")


@case("nccl.net_plugin", "fail", "look for harp and libnccl-net-harp.so", "harpctl enable")
def second_name_is_turned_off(world: World) -> None:
    world.write("/etc/nccl.conf", "NCCL_NET_PLUGIN=harp\n")
    parked = make_copy(SECOND.replace("libnccl", "bak.libnccl"), "bak.")
    world.copies = (*world.copies, replace(parked, name="libnccl-net-harp.so"))


@case(
    "nccl.net_plugin",
    "fail",
    "NCCL_NET_PLUGIN=none (environment) makes NCCL 2.21.5 look for none",
    "export NCCL_NET_PLUGIN=harp",
)
def turned_off_beside_another_plugin(world: World) -> None:
    beside_another_plugin(world)
    world.environment["NCCL_NET_PLUGIN"] = "none"


@case(
    "nccl.net_plugin",
    "fail",
    "NCCL 2.8.4 ignores NCCL_NET_PLUGIN=harp (environment) and takes /opt/x/libnccl-net.so.",
    "use NCCL 2.11 or newer, which heeds NCCL_NET_PLUGIN",
)
def older_than_the_variable(world: World) -> None:
    beside_another_plugin(world)
    world.environment["NCCL_NET_PLUGIN"] = "harp"
    libraries = (Library(path="/usr/lib/libnccl.so.2", version="2.8.4"),)
    world.facts = replace(world.facts, libraries=libraries)


@case("plugin.once", "warn", f"Beside {LIBRARY} there is {PARKED}", f"harpctl edit {PARKED} --delete")
def plugin_twice(world: World) -> None:
    world.copies = (make_copy(), make_copy(PARKED, "bak."))


@case("plugin.readable", "fail", "has mode 0600", f"chmod a+r {LIBRARY}", is_safe=True)
def unreadable_plugin(world: World) -> None:
    (world.root / LIBRARY.lstrip("/")).chmod(0o600)


@case("plugin.sound", "fail", "is cut off", "harpctl install")
def damaged_plugin(world: World) -> None:
    world.copies = (make_copy(elf=None, problem=f"{LIBRARY} is cut off: it has 12 of at least 99 bytes."),)


@case("plugin.fits", "fail", "is for aarch64, and this host is x86_64", "harpctl install")
def other_machine(world: World) -> None:
    world.copies = (make_copy(elf=replace(HARP, machine="aarch64")),)


@case("plugin.fits", "fail", "needs glibc 2.38, and this host has 2.31", "harpctl install")
def newer_glibc(world: World) -> None:
    world.copies = (make_copy(elf=replace(HARP, glibc="2.38")),)


@case("plugin.soname", "warn", "has the SONAME libnccl-net.so: ldconfig links", "harpctl install")
def has_soname(world: World) -> None:
    world.copies = (make_copy(elf=replace(HARP, soname="libnccl-net.so")),)


@case("plugin.loads", "fail", "does not load: libcuda.so.1: cannot open", "harpctl install")
def does_not_load(world: World) -> None:
    assert world.machine
    world.machine.loading = "libcuda.so.1: cannot open shared object file"


@case("plugin.interface", "fail", "NCCL 2.6.4 (/usr/lib/libnccl.so.2) finds no interface", "harpctl install")
def no_common_interface(world: World) -> None:
    world.facts = replace(world.facts, libraries=(Library(path="/usr/lib/libnccl.so.2", version="2.6.4"),))


@case("plugin.nccl", "warn", "/usr/lib/libnccl.so.2 is NCCL 2.7.8", "use NCCL 2.8 or newer")
def old_nccl(world: World) -> None:
    world.facts = replace(world.facts, libraries=(Library(path="/usr/lib/libnccl.so.2", version="2.7.8"),))
