# SPDX-License-Identifier: Apache-2.0
"""Tells the host's network managers to leave the ENIs alone. What an ENI needs is in model.py.

Every manager that is installed is told, whether or not it is in use. The default-route interface stays with
its manager. An interface that lies on another (a VLAN, a bond) has to be made by its manager first.

- systemd-networkd, also under netplan: 0-harp-<name>.network, by name and MAC address. Of all files that
  match, the first by name counts.
- NetworkManager, also under netplan: conf.d/zz-harp.conf, by MAC address. `+=` in the last file adds to all
  other lists, and no profile is activated on such a device.
- network-scripts: ONBOOT=no and NM_CONTROLLED=no in the ifcfg file that is there.
- ifupdown: EXCLUDE_INTERFACES for `ifup -a`, and ifup@<name>.service masked for hotplug.

None is reloaded, because networkd 252 and NetworkManager 1.42 would take their addresses away then. networkd
goes on until the reboot; `nmcli device set NAME managed no` has NetworkManager leave all as it is. Where the
permanent MAC address is known it is matched, because names may move between two boots, and the primary may
then have an ENI's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from harpctl.change.steps import AnyStep, MakeLink, RemoveFile, Run, WriteFile
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Facts
from harpctl.facts.sources import NM_DEVICE, NM_RUNNING, Sources
from harpctl.network.model import EniPlan

HEAD = "# Written by harpctl setup; harpctl rollback takes it away. harp.service sets this interface up.\n"
LEFT_ALONE = "{} leaves the ENIs alone"
NETWORKD = "/etc/systemd/network/0-harp-{name}.network"
NETWORKD_DIRS = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
NETWORKMANAGER = "/etc/NetworkManager/conf.d/zz-harp.conf"
IFCFG_DIR = "/etc/sysconfig/network-scripts"
COPIES = (".bak", ".orig", ".rpmnew", ".rpmsave", "~")  # network-scripts pass over such files
INTERFACES = "/etc/network/interfaces"
IFUPDOWN = "/etc/default/networking"
EXCLUDED = re.compile(r"^[ \t]*EXCLUDE_INTERFACES=[\"']?([^\"'\n]*)[\"']?[ \t]*$\n?", re.MULTILINE)
IFUP_UNIT = "/etc/systemd/system/ifup@{}.service"
DEVICES = ("", "veth")  # kinds of interfaces that no manager has to make
PERMANENT = ("", "0")  # addr_assign_type where the MAC address is the device's own
UNMANAGED = "10 "
CONNECTED = "100 "
STARTED = "nm-online -q -s -t 30"  # waits for a NetworkManager that is being started
RELOAD = f"{STARTED}; nmcli general reload conf || systemctl reload NetworkManager"  # nmcli's since 1.22
UP_WAIT_S = 45
UP_TIMEOUT_S = 60.0


def plan_agreement(facts: Facts, sources: Sources, enis: Sequence[EniPlan], gone: Sequence[str]) -> list[AnyStep]:
    """Plan what each manager is told. Raises HarpError where one can't be made to leave an ENI.

    `gone` are the names of earlier ENIs that are not used any more.
    """
    own = [eni for eni in enis if eni.address]
    devices = [eni for eni in own if _kind_of(facts, eni) in DEVICES]
    return [
        *_plan_networkd(sources, own),
        *_plan_networkmanager(facts, sources, own, devices),
        *_plan_ifcfg(sources, devices),
        *_plan_ifupdown(sources, [eni.name for eni in devices], gone),
    ]


def _kind_of(facts: Facts, eni: EniPlan) -> str:
    found = facts.find_eni(eni.name)
    return found.kind if found is not None else ""


# ---- systemd-networkd ----


def _plan_networkd(sources: Sources, enis: Sequence[EniPlan]) -> Iterator[AnyStep]:
    wanted = {NETWORKD.format(name=eni.name): _unit_text(eni) for eni in enis if "networkctl" in sources.programs}
    for path, text in wanted.items():
        _refuse_earlier(sources, path.rpartition("/")[2])
        why = LEFT_ALONE.format("systemd-networkd")
        yield WriteFile(path=path, data=text.encode(), mode=0o644, why=why)
    for path in sources.glob(NETWORKD.format(name="*")):
        if path not in wanted:
            yield RemoveFile(path=path, why="this ENI is not used any more")


def _unit_text(eni: EniPlan) -> str:
    mac = f"MACAddress={eni.mac}\n" if eni.mac else ""
    return f"{HEAD}[Match]\nName={eni.name}\n{mac}\n[Link]\nUnmanaged=yes\nRequiredForOnline=no\n"


def _refuse_earlier(sources: Sources, name: str) -> None:
    """Raise where networkd reads another file before ours."""
    for folder in NETWORKD_DIRS:
        for path in sources.glob(f"{folder}/systemd/network/*.network"):
            other = path.rpartition("/")[2]
            if other < name and not other.startswith("0-harp-"):
                raise HarpError(
                    f"systemd-networkd reads {path} before a file of ours, so it can't be made to leave an"
                    " ENI alone.",
                    f"Rename it: mv {path} {path.rpartition('/')[0]}/10-{other.lstrip('-0')}",
                    ExitCode.REFUSED,
                )


# ---- NetworkManager ----


def _plan_networkmanager(
    facts: Facts, sources: Sources, enis: Sequence[EniPlan], devices: Sequence[EniPlan]
) -> Iterator[AnyStep]:
    if "NetworkManager" not in sources.programs:
        return
    is_running = (sources.query(NM_RUNNING) or "").strip() == "running"
    for eni in enis:
        state, uuid = _query_device(sources, eni.name)
        if state.startswith(UNMANAGED):
            continue
        if eni not in devices:
            raise HarpError(
                f"{eni.name} is a {_kind_of(facts, eni)} of NetworkManager: told to leave it alone, it would not"
                " make it at the next boot.",
                f"Configure {eni.name} there, and leave the network as it is here: --no-network",
                ExitCode.REFUSED,
            )
        if uuid:
            wait_s = str(UP_WAIT_S if state.startswith(CONNECTED) else 0)
            up = ("nmcli", "--wait", wait_s, "connection", "up", "uuid", uuid, "ifname", eni.name)
            yield Run(undo=up, fleeting=True, timeout_s=UP_TIMEOUT_S, why=f"{eni.name} as it was")
        leave, take = (("nmcli", "device", "set", eni.name, "managed", word) for word in ("no", "yes"))
        why = f"NetworkManager leaves {eni.name} as it is"
        yield Run(argv=leave, undo=take, always=True, fleeting=True, why=why)
    if is_running:
        yield Run(undo=("sh", "-c", RELOAD), fleeting=True, why="NetworkManager follows its files")
    if devices:
        words = ";".join(_selector_of(facts, sources, eni) for eni in devices)
        data = f"{HEAD}[keyfile]\nunmanaged-devices+={words}\n".encode()
        why = LEFT_ALONE.format("NetworkManager")
        yield WriteFile(path=NETWORKMANAGER, data=data, mode=0o644, why=why)
    else:
        yield RemoveFile(path=NETWORKMANAGER, why="no ENI is left to it")


def _selector_of(facts: Facts, sources: Sources, eni: EniPlan) -> str:
    """Return how NetworkManager knows an ENI: by its permanent MAC address, where no other has that too."""
    same = {other.name for other in facts.enis if eni.mac and other.mac.lower() == eni.mac.lower()}
    is_permanent = sources.read_word(f"/sys/class/net/{eni.name}/addr_assign_type") in PERMANENT
    by_mac = bool(eni.mac) and is_permanent and same <= {eni.name}
    return f"mac:{eni.mac}" if by_mac else f"interface-name:={eni.name}"


def _query_device(sources: Sources, name: str) -> tuple[str, str]:
    """Return the state of an interface, and its connection's UUID, as a running NetworkManager says."""
    lines = (sources.query((*NM_DEVICE, name)) or "").splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return fields.get("GENERAL.STATE", UNMANAGED), fields.get("GENERAL.CON-UUID", "").strip("-")


# ---- network-scripts ----


def _plan_ifcfg(sources: Sources, enis: Sequence[EniPlan]) -> Iterator[AnyStep]:
    """Yield the ifcfg files of ENIs with the two words, where the service `network` is there to read them."""
    if not any(sources.exists(f"{folder}/network") for folder in ("/etc/rc.d/init.d", "/etc/init.d")):
        return
    for path in sources.glob(f"{IFCFG_DIR}/ifcfg-*"):
        text = sources.read_text(path) or ""
        if path.endswith(COPIES) or not any(_is_ifcfg_of(eni, path, text) for eni in enis):
            continue
        for key in ("ONBOOT", "NM_CONTROLLED"):
            text, count = re.subn(rf"^[ \t]*{key}=.*$", f"{key}=no", text, flags=re.MULTILINE)
            text += "" if count else ("" if not text or text.endswith("\n") else "\n") + f"{key}=no\n"
        data, why = text.encode("utf-8", "surrogateescape"), LEFT_ALONE.format("the service network")
        yield WriteFile(path=path, data=data, why=why)


def _is_ifcfg_of(eni: EniPlan, path: str, text: str) -> bool:
    pairs = re.findall(r"^[ \t]*(\w+)=[\"']?([^\"'\s#]*)", text, re.MULTILINE)
    values = {key: value.lower() for key, value in pairs}
    if "DEVICE" in values or "HWADDR" not in values:
        return bool(values.get("DEVICE", path.partition("ifcfg-")[2]) == eni.name.lower())
    return bool(eni.mac) and bool(values["HWADDR"] == eni.mac.lower())


# ---- ifupdown ----


def _plan_ifupdown(sources: Sources, names: Sequence[str], gone: Sequence[str]) -> Iterator[AnyStep]:
    if "ifup" not in sources.programs or not sources.exists(INTERFACES):
        return
    why = LEFT_ALONE.format("ifupdown")
    text = sources.read_text(IFUPDOWN) or ""
    words = [word for match in EXCLUDED.findall(text)[-1:] for word in match.split()]
    kept = [word for word in words if word not in {*names, *gone}]
    rest = EXCLUDED.sub("", text)
    rest += "" if not rest or rest.endswith("\n") else "\n"
    if names or kept != words:
        data = f'{rest}EXCLUDE_INTERFACES="{" ".join([*kept, *names])}"\n'
        yield WriteFile(path=IFUPDOWN, data=data.encode("utf-8", "surrogateescape"), why=why)
    for name in names:
        yield MakeLink(path=IFUP_UNIT.format(_escape_instance(name)), target="/dev/null", why=why)
    for name in gone:
        yield RemoveFile(path=IFUP_UNIT.format(_escape_instance(name)), why="this ENI is not used any more")


def _escape_instance(name: str) -> str:
    """Write a name as the instance of a unit: what systemd-escape makes of it."""
    return re.sub(r"[^A-Za-z0-9:_.]|^\.", lambda found: f"\\x{ord(found[0]):02x}", name)
