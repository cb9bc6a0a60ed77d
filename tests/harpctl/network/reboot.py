# SPDX-License-Identifier: Apache-2.0
"""A host that is set up, booted, and rolled back: a real systemd with a real network manager, in namespaces.

Its files are this machine's own below an overlay in memory, without its network configuration; each boot has
new namespaces, with eth0 to eth3, and an identity of its own. The manager's own files give each interface an
address and an MTU. Setup takes eth1 and eth2, of one subnet, and eth3, of IPv6 alone.
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
BOOT_S = 600
ADDRESS = {
    "eth0": "10.0.9.10/24",
    "eth1": "10.0.1.98/24",
    "eth2": "10.0.1.99/24",
    "eth3": "2001:db8:1::99/64",
}
MAC = {name: f"52:54:00:00:00:1{name[-1]}" for name in ADDRESS}
NETWORKD = ["systemd-networkd.service", "systemd-networkd-wait-online.service"]
NETWORKMANAGER = ["NetworkManager.service", "NetworkManager-wait-online.service"]
UNWANTED = ("getty.target", "systemd-logind.service", "systemd-udevd.service", "systemd-udev-trigger.service")
REMOVED = (  # a container's mark, kernels' boot entries, and what configures the network
    *(".dockerenv", "boot/*", "etc/netplan", "etc/systemd/network", "etc/NetworkManager/conf.d"),
    *("etc/network/interfaces.d", "etc/NetworkManager/system-connections", "etc/default/networking"),
    *("etc/harp", "var/lib/harp"),
)
OWN = {"eth1": "10.0.1.11/24", "eth2": "10.0.1.12/24", "eth3": "2001:db8:1::13/64"}
OPTIONS = (
    "--gpus 1 --no-kernel-args --page-size 2M --hugepages 1 --mtu 1450 --channels 2"
    f" --enis {','.join(OWN)} {' '.join(f'--address {name}={address}' for name, address in OWN.items())}"
    " --gateway eth1=10.0.1.1 --gateway eth2=10.0.1.1 --gateway eth3=2001:db8:1::1"
)
SUCCESS = "Set up HARP successfully"
LEFT_ALONE = {"NetworkManager.service": "10 (unmanaged)", "systemd-networkd.service": "unmanaged"}
STATE = "mtu 1450 channels 2 2 arp 1 2 rp_filter 2 TCP 131072"
RIGHT = f"""
eth1 10.0.1.11/24 {STATE} MANAGER
eth2 10.0.1.12/24 {STATE} MANAGER
eth3 2001:db8:1::13/64 {STATE.replace("arp 1 2 rp_filter 2 ", "")} MANAGER
7700: from 10.0.1.11 lookup 7700
7701: from 10.0.1.12 lookup 7701
10.0.1.0/24 dev eth1 table 7700 scope link
10.0.1.0/24 dev eth2 table 7701 scope link
default via 10.0.1.1 dev eth1 table 7700 onlink
default via 10.0.1.1 dev eth2 table 7701 onlink
7702: from 2001:db8:1::13 lookup 7702
2001:db8:1::/64 dev eth3 table 7702 metric 1024 pref medium
default via 2001:db8:1::1 dev eth3 table 7702 metric 1024 pref medium
harp.service active harp-validate.service active
"""
# Left out are routes of eth0, those of link-local addresses, and the metrics that NetworkManager counts.
SHOW = f"""
PYTHONPATH={ROOT} {PYTHON} -m tests.harpctl.network.sizes >/run/sizes
for name in eth1 eth2 eth3; do
  ip -o addr show dev $name scope global | awk '{{ print $4 }}' >/run/addresses
  echo $name $(cat /run/addresses) mtu $(cat /sys/class/net/$name/mtu) \
    channels $(ethtool -l $name | sed 1,/^Current/d | awk '/X:/ {{ print $2 }}') \
    $(cd /proc/sys/net/ipv4/conf/$name; grep -q : /run/addresses ||
      echo arp $(cat arp_ignore arp_announce) rp_filter $(cat rp_filter)) \
    TCP $(sed -n "s/^$name //p" /run/sizes) \
    $(systemctl -q is-active NetworkManager && nmcli -g GENERAL.STATE device show $name) \
    $(systemctl -q is-active systemd-networkd && networkctl --no-legend list $name | awk '{{ print $NF }}')
done
for version in -4 -6; do
  ip $version rule | grep ^77
  ip $version route show table all | grep 'dev eth[123]' | grep -Ev 'table local|^fe80|^multicast|^169|^224' |
    sed -E 's/ metric 10[0-9]( |$)/\\1/' | sort
done
echo harp.service $(systemctl is-active harp.service) \
  harp-validate.service $(systemctl is-active harp-validate.service)
"""
SIZES = "ip link set eth1 gso_max_size 65536 gro_max_size 65536"  # the kernel reports neither
ARP = "echo 0 >/proc/sys/net/ipv4/conf/eth1/arp_ignore"
TAKEN_AWAY = (
    "ip addr flush dev eth1",
    "ip rule del pref 7700; ip rule del pref 7701; ip -6 rule del pref 7702",
    "ip route flush table 7701; ip -6 route flush table 7702",
    "ip link set dev eth3 down",
    "ethtool -L eth1 rx 4 tx 4; ethtool -L eth3 rx 1 tx 1",
    f"{SIZES}; {ARP}; ip link set dev eth2 mtu 1500",
)
# settled: waits until the manager has brought up all interfaces. again: waits until what is shown is as it
# was, else tells the difference. valid: the verdict, else all.
FUNCTIONS = """
settled() { for i in $(seq 120); do sh /show.sh | grep -q connecting || return; sleep 0.5; done; }
valid() { if harpctl validate >/validate.out 2>&1; then tail -1 /validate.out; else cat /validate.out; fi; }
again() {
  for i in $(seq 60); do sh /show.sh | cmp -s "$1" - && return; sleep 0.5; done
  echo "not as before: $2"; sh /show.sh | diff "$1" -
}
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
mkdir run/host; echo lxc >run/host/container-manager  # systemd reads it, and harpctl does not
pages=sys/kernel/mm/hugepages; mount -t tmpfs none $pages; mkdir $pages/hugepages-2048kB
echo 1 >$pages/hugepages-2048kB/nr_hugepages; echo 0 >$pages/hugepages-2048kB/free_hugepages
cat /proc/sys/kernel/random/uuid >run/boot_id; mount --bind run/boot_id proc/sys/kernel/random/boot_id
echo 0 >/proc/sys/net/ipv4/ip_forward
for folder in {folders}; do mkdir -p ./$folder; mount --rbind $folder ./$folder; done
ip link set lo up; ip netns add net
ip -n net link add br1 type bridge mcast_snooping 0; ip -n net link set br1 up
for address in 10.0.1.1/24 10.0.9.1/24 2001:db8:1::1/64; do ip -n net addr add $address dev br1; done
channels='numrxqueues 4 numtxqueues 4'
for number in 0 1 2 3; do
  ip link add eth$number address 52:54:00:00:00:1$number $channels type veth \
    peer name to-eth$number $channels netns net
  ip -n net link set to-eth$number master br1 up
done
exec chroot . env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C {systemd} --system \
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
            *(f"mac-address={MAC[name]}", f"[ipv{6 if ':' in address else 4}]", "method=manual"),
            *("may-fail=false", f"address1={address}"),
            *(f"[ipv{4 if ':' in address else 6}]", "method=disabled", ""),
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
        text += f"    a-{name}: {{match: {{name: '{name}*'}}, addresses: ['{address}'], mtu: 1400}}\n"
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
        family = "inet6" if ":" in address else "inet"
        mtu = f"pre-up ip link set dev {name} mtu 1400"  # `mtu` of inet6 is not the interface's
        text += f"auto {name}\niface {name} {family} static\n    address {address}\n    {mtu}\n\n"
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
    sh(f"cd {tree} && rm -rf {' '.join(REMOVED)} {UNITS}/*.wants && mkdir -p etc/NetworkManager/conf.d")
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
    put(tree, "show.sh", SHOW)
    put(tree, "usr/local/bin/harpctl", f'#!/bin/sh\n{program} "$@"\n', 0o755)
    return tree, " ".join(units)


def boot(tree: Path, script: str) -> list[str]:
    """Boot once, run a script when the network is up, and return what it printed."""
    put(tree, "drive.sh", script)
    put(tree, "drive.out", "")
    folders = " ".join(dict.fromkeys(map(str, (ROOT, PREFIX, sys.base_prefix))))
    first = FIRST.format(tree=tree, systemd=SYSTEMD, folders=folders)
    unshare = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]
    try:
        subprocess.run([*unshare, "--mount-proc", "bash", "-c", first], timeout=BOOT_S, check=False)
    finally:
        lines = [" ".join(line.split()) for line in (tree / "drive.out").read_text().splitlines()]
        print(*lines, "", sep="\n", flush=True)
    return lines


def main() -> None:
    """Set up, roll back, set up, boot, take away, restart the manager, roll back, boot."""
    manager, folder, *lower = sys.argv[1:]
    tree, units = build(Path(folder), manager, *lower)
    setup = f"harpctl setup {OPTIONS}"
    undo = "harpctl rollback --yes >/rollback.out 2>&1 || cat /rollback.out"
    lines = boot(
        tree,
        f"{FUNCTIONS} settled; sh /show.sh | tee /before; echo\n"
        f"{setup} --yes 2>/dev/null | grep -E 'next boot|^Set'; {undo}; again /before rollback; echo\n"
        f"{setup} --yes 2>/dev/null | tail -1; {setup} --dry-run --exit-code; echo again $?\n"
        "harpctl install --yes >/install.out 2>&1 || cat /install.out",
    )
    before, first, *second = "\n".join(lines).split("\n\n")
    assert all(f"{name} {ADDRESS[name]} mtu 1400 channels 4 4 " in before for name in OWN)
    note = "Note: {} has {} alone from the next boot on, without {}."
    notes = [note.format(name, address, ADDRESS[name]) for name, address in OWN.items()]
    assert first.splitlines() == [*notes, SUCCESS]
    repeated = "\n".join(second).splitlines()
    assert (repeated[0], repeated[-1]) == (SUCCESS, "again 0")
    losses = "".join(f"{line}; again /right {shlex.quote(line)}\n" for line in TAKEN_AWAY)
    lines = boot(
        tree,
        f"{FUNCTIONS} sh /show.sh | tee /right; valid; echo\n"
        f"{losses} valid; echo\n"
        f"systemctl restart {units.split()[0]}; again /right restart; valid; echo\n"
        f"{undo}; echo rolled back",
    )
    after_boot, *later = "\n".join(lines).split("\n\n")
    right = RIGHT.replace(" MANAGER", f" {LEFT_ALONE.get(units.split()[0], '')}".rstrip()).split("\n")[1:-1]
    *shown, verdict = after_boot.splitlines()
    assert shown == right
    assert verdict.startswith("HARP is set up correctly: ")
    assert later == [verdict, verdict, "rolled back"], "all is as before after each loss, and after a restart"
    assert boot(tree, f"{FUNCTIONS} again /before boot") == []


if __name__ == "__main__":
    main()
