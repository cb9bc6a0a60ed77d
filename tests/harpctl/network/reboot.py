# SPDX-License-Identifier: Apache-2.0
"""A host that is set up, booted, and rolled back: a real systemd with a real network manager, in namespaces.

Its files are this machine's own below an overlay in memory, without its network configuration; each boot has
new namespaces, with eth0 and eth1. The manager's own files give eth1 another address and MTU.
Started by test_reboot.py below `unshare --mount`: python -m tests.harpctl.network.reboot MANAGER FOLDER.
A third word names a tree with the files of another distribution, as mmdebstrap makes it.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PREFIX = Path(sys.prefix).resolve()  # a worktree's may be a link
PYTHON = PREFIX / "bin" / "python"
SYSTEMD = "/lib/systemd/systemd"
UNITS = "etc/systemd/system"
BOOT_S = 240
OTHER = "10.0.1.99/24"
ADDRESS = {"eth0": "10.0.9.10/24", "eth1": OTHER}
MAC = {"eth0": "52:54:00:00:00:10", "eth1": "52:54:00:00:00:11"}
NETWORKD = ["systemd-networkd.service", "systemd-networkd-wait-online.service"]
NETWORKMANAGER = ["NetworkManager.service", "NetworkManager-wait-online.service"]
UNWANTED = ("getty.target", "systemd-logind.service", "systemd-udevd.service", "systemd-udev-trigger.service")
NETWORK_FILES = (
    *("etc/netplan", "etc/systemd/network", "etc/NetworkManager/conf.d", "etc/network/interfaces.d"),
    *("etc/NetworkManager/system-connections", "etc/default/networking", "etc/harp", "var/lib/harp"),
)
OPTIONS = (
    "--force --gpus 1 --no-kernel-args --page-size 2M --hugepages 1 --enis eth1"
    " --address eth1=10.0.1.11/24 --gateway eth1=10.0.1.1 --mtu 1450"
)
RIGHT = [
    "eth1 10.0.1.11/24",
    "7700: from 10.0.1.11 lookup 7700",
    "default via 10.0.1.1 dev eth1 onlink",
    "10.0.1.0/24 dev eth1 scope link",
    "mtu 1450",
    "arp 1 2 rp_filter 2",
    "harp.service active",
]
LEFT_ALONE = {"NetworkManager.service": ["10 (unmanaged)"], "systemd-networkd.service": ["unmanaged"]}
SHOW = """
ip -4 -br addr show dev eth1 | sed 's/@[^ ]*//' | awk '{ $2 = ""; print }'
ip rule | grep ^77; ip route show table 7700 2>/dev/null
echo mtu $(cat /sys/class/net/eth1/mtu)
cd /proc/sys/net/ipv4/conf/eth1; echo arp $(cat arp_ignore arp_announce) rp_filter $(cat rp_filter)
echo harp.service $(systemctl is-active harp.service)
systemctl -q is-active NetworkManager && nmcli -g GENERAL.STATE device show eth1
systemctl -q is-active systemd-networkd && networkctl --no-legend list eth1 | awk '{ print $NF }'
true
"""
# The first process of a boot: makes what the kernel makes on a machine, then becomes systemd.
FIRST = """
set -e
mount --make-rprivate /; mount -t tmpfs none /run; cd {tree}
mount -t proc proc proc; mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 none sys/fs/cgroup
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then mount -t cgroup2 cgroup2 sys/fs/cgroup
else mkdir sys/fs/cgroup/systemd; mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd; fi
mount -t tmpfs -o mode=755 none dev; mount -t tmpfs -o mode=755 none run; mount -t tmpfs none tmp
for device in null zero full random urandom tty; do
  touch dev/$device; mount --bind /dev/$device dev/$device
done
mkdir dev/shm dev/pts; ln -s /proc/self/fd dev/fd
mkdir run/systemd; echo lxc >run/systemd/container
for folder in {folders}; do mkdir -p ./$folder; mount --rbind $folder ./$folder; done
ip link set lo up; ip netns add net
ip -n net link add br1 type bridge mcast_snooping 0; ip -n net link set br1 up
ip -n net addr add 10.0.1.1/24 dev br1; ip -n net addr add 10.0.9.1/24 dev br1
for number in 0 1; do
  ip link add eth$number address 52:54:00:00:00:1$number type veth peer name to-eth$number netns net
  ip -n net link set to-eth$number master br1 up
done
exec chroot . env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C {systemd} --system \
  --unit=multi-user.target --log-target=null --show-status=0
"""
DRIVE = """
[Unit]
After=network-online.target harp.service harp-validate.service
Wants=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sh /drive.sh
StandardOutput=file:/drive.out
StandardError=inherit
ExecStopPost=/bin/kill -s RTMIN+4 1
"""


def networkd(tree: Path) -> list[str]:
    """Files that sort before the usual ones and match by MAC address."""
    for name, address in ADDRESS.items():
        text = f"[Match]\nMACAddress={MAC[name]}\n[Link]\nMTUBytes=1400\n[Network]\nAddress={address}\n"
        put(tree, f"etc/systemd/network/05-{name}.network", text)
    return NETWORKD


def networkmanager(tree: Path, priority: int = 999) -> list[str]:
    """Profiles in the words of cloud-init, with the highest priority that there is."""
    for number, (name, address) in enumerate(ADDRESS.items()):
        lines = [
            *("[connection]", f"id=cloud-init {name}", f"uuid=00000000-0000-4000-8000-00000000000{number}"),
            *("type=ethernet", f"autoconnect-priority={priority}", "[user]"),
            *("org.freedesktop.NetworkManager.origin=cloud-init", "[ethernet]", "mtu=1400"),
            *(f"mac-address={MAC[name]}", "[ipv4]", "method=manual", "may-fail=false"),
            *(f"address1={address}", "[ipv6]", "method=disabled", ""),
        ]
        path = f"etc/NetworkManager/system-connections/cloud-init-{name}.nmconnection"
        put(tree, path, "\n".join(lines), 0o600)
    return NETWORKMANAGER


def rocky(tree: Path) -> list[str]:
    """Rocky 9's cloud image: plugins as compiled in, no profiles of its own, and cloud-init's priority.

    Debian's NetworkManager lacks ifcfg-rh, the plugin that would read ifcfg files.
    """
    for path in ("etc/os-release", "usr/lib/os-release"):
        put(tree, path, 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n')
    put(tree, "etc/NetworkManager/NetworkManager.conf", "[main]\n#plugins=keyfile,ifcfg-rh\n")
    server = "[main]\nno-auto-default=*\nignore-carrier=*\n"
    put(tree, "usr/lib/NetworkManager/conf.d/00-server.conf", server)
    only = "[.config]\nenable=nm-version-min:1.40\n[connection.30-cloud-init]\nipv6.addr-gen-mode=0\n"
    put(tree, "etc/NetworkManager/conf.d/30-cloud-init-ip6-addr-gen-mode.conf", only)
    return networkmanager(tree, priority=120)


def netplan(tree: Path, renderer: str) -> None:
    """Definitions with ids that sort early; they match by a pattern, because veth lacks a permanent MAC."""
    text = f"network:\n  version: 2\n  renderer: {renderer}\n  ethernets:\n"
    for name, address in ADDRESS.items():
        text += f"    a-{name}: {{match: {{name: '{name}*'}}, addresses: [{address}], mtu: 1400}}\n"
    put(tree, "etc/netplan/50-cloud-init.yaml", text, 0o600)


def netplan_networkd(tree: Path) -> list[str]:
    """The generator of netplan starts networkd by itself."""
    netplan(tree, "networkd")
    return NETWORKD


def netplan_networkmanager(tree: Path) -> list[str]:
    """The generator of netplan writes the profiles at each boot."""
    netplan(tree, "NetworkManager")
    return NETWORKMANAGER


def ifupdown(tree: Path) -> list[str]:
    """Interfaces that cloud-init has come up at boot, one of them by hotplug too."""
    text = "auto lo\niface lo inet loopback\n\n"
    for name, address in ADDRESS.items():
        text += f"auto {name}\niface {name} inet static\n    address {address}\n    mtu 1400\n\n"
    put(tree, "etc/network/interfaces", "source interfaces.d/*\nallow-hotplug eth1\n")
    put(tree, "etc/network/interfaces.d/50-cloud-init", text)
    put(tree, "etc/default/networking", "EXCLUDE_INTERFACES=eth9\n")
    return ["networking.service"]


MANAGERS = {
    "networkd": networkd,
    "netplan": netplan_networkd,
    "netplan-NetworkManager": netplan_networkmanager,
    "NetworkManager": networkmanager,
    "Rocky": rocky,
    "ifupdown": ifupdown,
}


def put(tree: Path, path: str, text: str, mode: int = 0o644) -> None:
    file = tree / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.write_text(text)
    file.chmod(mode)


def sh(line: str) -> None:
    subprocess.run(["sh", "-c", line], check=True)


def build(folder: Path, manager: str, lower: str = "/") -> tuple[Path, str]:
    """Make the host's files over others; return them, and the units of its manager."""
    memory, tree = folder / "memory", folder / "tree"
    memory.mkdir()
    tree.mkdir()
    sh(f"mount -t tmpfs none {memory} && mkdir {memory}/upper {memory}/work")
    sh(f"mount -t overlay none -o lowerdir={lower},upperdir={memory}/upper,workdir={memory}/work {tree}")
    sh(f"cd {tree} && rm -rf {' '.join(NETWORK_FILES)} {UNITS}/*.wants && mkdir -p etc/NetworkManager/conf.d")
    sh(f"cd {tree} && : >etc/fstab && : >etc/network/interfaces && echo ID=debian >etc/os-release")
    for unit in UNWANTED:
        sh(f"ln -sf /dev/null {tree}/{UNITS}/{unit}")
    wanted = tree / UNITS / "multi-user.target.wants"
    wanted.mkdir(parents=True)
    put(tree, "etc/NetworkManager/NetworkManager.conf", "[main]\nplugins=keyfile\ndns=none\n")
    units = MANAGERS[manager](tree)
    put(tree, f"{UNITS}/drive.service", DRIVE)
    for unit in (*units, "drive.service"):
        folder_of = f"/{UNITS}" if unit == "drive.service" else "/lib/systemd/system"
        (wanted / unit).symlink_to(f"{folder_of}/{unit}")
    program = f"PYTHONPATH={ROOT} exec {PYTHON} -m harpctl"
    put(tree, "usr/local/bin/harpctl", f'#!/bin/sh\n{program} "$@"\n', 0o755)
    return tree, " ".join(units)


def boot(tree: Path, script: str) -> list[str]:
    """Boot once, run a script when the network is up, and return what it printed."""
    put(tree, "drive.sh", script)
    put(tree, "drive.out", "")
    folders = " ".join(dict.fromkeys(map(str, (ROOT, PREFIX, sys.base_prefix))))
    first = FIRST.format(tree=tree, systemd=SYSTEMD, folders=folders)
    unshare = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    done = subprocess.run(
        [*unshare, "--mount-proc", "bash", "-c", first],
        timeout=BOOT_S,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [" ".join(line.split()) for line in (tree / "drive.out").read_text().splitlines()]
    print(*lines, done.stderr, sep="\n", flush=True)
    return lines


def until(condition: str) -> str:
    return f"for i in $(seq 300); do {condition} && break; sleep 0.1; done\n"


def main() -> None:
    """Set up, boot, take away, restart the manager, roll back, boot."""
    manager, folder, *lower = sys.argv[1:]
    tree, units = build(Path(folder), manager, *lower)
    setup = f"harpctl setup {OPTIONS}"
    lines = boot(tree, f"{setup} --yes 2>/dev/null | tail -1; {setup} --dry-run --exit-code; echo again $?")
    assert "Set up HARP successfully" in lines
    assert lines[-1] == "again 0"
    restored = until("ip rule | grep -q ^7700")
    lines = boot(
        tree,
        f"{SHOW} echo; ip addr flush dev eth1; ip rule del pref 7700\n{restored} {SHOW} echo\n"
        f"systemctl restart {units}\n{SHOW} echo; harpctl rollback --yes; echo $?",
    )
    after_boot, given_back, restarted, rolled_back = "\n".join(lines).split("\n\n", 3)
    right = RIGHT + LEFT_ALONE.get(units.split()[0], [])
    assert after_boot.splitlines() == right
    assert given_back.splitlines() == right
    assert restarted.splitlines() == right
    assert rolled_back.splitlines()[-1] == "0"
    lines = boot(tree, until(f"ip addr show dev eth1 | grep -q {shlex.quote(OTHER)}") + SHOW)
    arp = lines.pop(2)  # the distribution chooses rp_filter
    assert arp.startswith("arp 0 0 ")
    assert lines[:3] == [f"eth1 {OTHER}", "mtu 1400", "harp.service inactive"]


if __name__ == "__main__":
    main()
