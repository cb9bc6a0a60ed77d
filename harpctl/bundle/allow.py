# SPDX-License-Identifier: Apache-2.0
"""What may go into a bundle: variables, keys and kernel arguments, by name. Everything else is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from harpctl.confs.conf import quoted_start
from harpctl.confs.table import KEYS, SECTIONS
from harpctl.confs.table import VARIABLES as HARP_VARIABLES
from harpctl.facts.model import Facts
from harpctl.plugin.settings import SetVariable

LEFT_OUT = "(left out)"
PREFIXES = ("NCCL_", "HARP_")
NCCL = (
    "ALGO", "BUFFSIZE", "CHECKS_DISABLE", "CHECK_POINTERS", "COMM_BLOCKING", "COMM_ID", "CONF_FILE",
    "CONNECT_ROUND_MAX_PEERS", "CROSS_NIC", "CUMEM_ENABLE", "CUMEM_HOST_ENABLE", "DEBUG", "DEBUG_FILE",
    "DEBUG_SUBSYS", "DMABUF_ENABLE", "GDRCOPY_ENABLE", "GDR_FLUSH_DISABLE", "GIN_PLUGIN", "GIN_TYPE",
    "GRAPH_FILE", "GRAPH_MIXING_SUPPORT", "GRAPH_REGISTER", "HOSTID", "IB_DISABLE", "IB_HCA",
    "IGNORE_CPU_AFFINITY", "IGNORE_DISABLED_P2P", "LAUNCH_MODE", "LOCAL_REGISTER", "MAX_CTAS",
    "MAX_NCHANNELS", "MAX_P2P_NCHANNELS",
    "MIN_CTAS", "MIN_NCHANNELS", "MIN_P2P_NCHANNELS", "MNNVL_ENABLE", "NCHANNELS_PER_NET_PEER",
    "NCHANNELS_PER_PEER", "NET", "NET_DISABLE_INTRA", "NET_FORCE_MERGE", "NET_GDR_C2C", "NET_GDR_LEVEL",
    "NET_GDR_READ", "NET_MERGE_LEVEL", "NET_OPTIONAL_RECV_COMPLETION", "NET_OVERHEAD", "NET_PLUGIN",
    "NET_SHARED_BUFFERS", "NET_SHARED_COMMS", "NSOCKS_PERTHREAD", "NTHREADS", "NVB_DISABLE", "NVLS_ENABLE",
    "OOB_NET_ENABLE", "OOB_NET_IFNAME", "P2P_DISABLE", "P2P_LEVEL", "P2P_NET_CHUNKSIZE",
    "P2P_PXN_LEVEL", "PROFILER_PLUGIN", "PROGRESS_APPENDOP_FREQ", "PROTO", "PXN_C2C", "PXN_DISABLE",
    "RAS_ADDR", "RAS_ENABLE", "RAS_TIMEOUT_FACTOR", "RUNTIME_CONNECT", "SET_STACK_SIZE", "SET_THREAD_NAME",
    "SHM_DISABLE", "SINGLE_RING_THRESHOLD", "SOCKET_FAMILY", "SOCKET_IFNAME", "SOCKET_NTHREADS",
    "SOCKET_POLL_TIMEOUT_MSEC",
    "SOCKET_RETRY_CNT", "SOCKET_RETRY_SLEEP_MSEC", "THREAD_THRESHOLDS", "TOPO_DUMP_FILE", "TOPO_FILE",
    "TUNER_CONFIG_FILE", "TUNER_PLUGIN", "UNPACK_ENABLE", "WIN_ENABLE", "WORK_ARGS_BYTES", "WORK_FIFO_BYTES",
)  # fmt: skip
OTHERS = (
    "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
    "MASTER_PORT", "NVIDIA_VISIBLE_DEVICES", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "RANK", "SLURM_JOB_NUM_NODES",
    "SLURM_LOCALID", "SLURM_NNODES", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_PROCID", "WORLD_SIZE",
    "XDG_RUNTIME_DIR",
)  # fmt: skip
VARIABLES = {*HARP_VARIABLES, *(f"NCCL_{name}" for name in NCCL), *OTHERS}
KERNEL_ARGUMENTS = {
    "amd_iommu", "cgroup_enable", "default_hugepagesz", "hugepages", "hugepagesz", "idle",
    "intel_idle.max_cstate", "intel_iommu", "intel_pstate", "iommu", "iommu.passthrough", "iommu.strict",
    "irqaffinity", "isolcpus", "maxcpus", "mem", "mitigations", "nohz", "nohz_full", "nosmt", "nr_cpus",
    "numa", "numa_balancing", "pci",
    "processor.max_cstate", "quiet", "rcu_nocbs", "ro", "rw", "skew_tick", "systemd.unified_cgroup_hierarchy",
    "transparent_hugepage", "tsc",
}  # fmt: skip
VALUE = re.compile(r"[\w.,:;/^=+%<>\[\]() -]{0,400}", re.ASCII)
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
SECRET_CHARS_MIN = 6
NAME = re.compile(r"\w+", re.ASCII)  # of a field, a variable or a process
STRUCTURE = {"id", "title", "group", "level"}  # of a finding: words of harpctl's own
HOME = re.compile(r"/home/[^/\s:,;'\"]+")


class Scrubber:
    """Takes out of texts what names alone could not keep out: values of variables that stay out, home paths.

    It is the second filter: what is collected is chosen by name first.
    """

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def hide(self, *texts: str) -> None:
        """Remember texts to remove, also as harpctl's messages quote them."""
        for text in texts:
            self._secrets |= {one for one in (text, quoted_start(text)) if len(one) >= SECRET_CHARS_MIN}

    def learn(self, environment: Mapping[str, str]) -> None:
        """Remember the values of variables to remove."""
        for name, value in environment.items():
            is_allowed = name in VARIABLES and VALUE.fullmatch(value)
            if not is_allowed and (name.startswith(PREFIXES) or SECRET_NAME.search(name)):
                self.hide(value, value.strip())

    def text(self, text: str) -> str:
        """Return the text without them."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, LEFT_OUT)
        return HOME.sub("/home/USER", text)

    def data(self, value: object) -> object:
        """Return plain data whose texts are without them; names of fields and values of STRUCTURE stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                key if NAME.fullmatch(str(key)) else self.text(str(key)): item
                if key in STRUCTURE
                else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may be included, and only the names of other NCCL_ and HARP_ ones."""
    allowed = {}
    for name, value in sorted(environment.items()):
        if name in VARIABLES:
            allowed[name] = value if VALUE.fullmatch(value) else LEFT_OUT
        elif name.startswith(PREFIXES) and VALUE.fullmatch(name):
            allowed[name] = LEFT_OUT
    return allowed


def kernel_arguments(text: str) -> str:
    """Return a kernel command line; of arguments that are not known only the name."""
    words = []
    for word in text.split():
        name, equals, _value = word.partition("=")
        is_known = not equals or name in KERNEL_ARGUMENTS
        words.append(word if is_known and VALUE.fullmatch(word) else f"{name}={LEFT_OUT}")
    return " ".join(words)


def conf(text: str, scrubber: Scrubber) -> str:
    """Return a conf file's lines that the plugin takes; comments and all else are left out, and hidden."""
    lines, section = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        name, _, value = (part.strip() for part in words.partition("="))
        if words.startswith("[") and words.endswith("]") and words[1:-1] in SECTIONS:
            section = words[1:-1]
            lines.append(words)
        elif _is_valid(section, name, value):
            lines.append(f"{name} = {value}")
        elif words:
            what = "a comment" if words[0] in "#;" else "no key and value that the plugin takes"
            scrubber.hide(value or words, words.strip("[]"))
            lines.append(f"# line {number} is left out: {what}")
    return "\n".join(lines) + "\n"


def _is_valid(section: str, name: str, value: str) -> bool:
    row = KEYS.get(name)
    try:
        return row is not None and row.section == section and row.read(value) is not None
    except ValueError:
        return False


def facts(found: Facts) -> dict[str, Any]:
    """Return facts as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    boot = plain["boot"]
    boot["cmdline"] = kernel_arguments(boot.get("cmdline", ""))
    for entry in boot.get("entries", ()):
        entry["args"] = kernel_arguments(entry.get("args", ""))
    return plain


def settings(found: Iterable[SetVariable]) -> list[dict[str, str]]:
    """Return the settings that may be included."""
    allowed = []
    for setting in found:
        value = variables({setting.name: setting.value}).get(setting.name)
        if value is not None:
            allowed.append({"name": setting.name, "value": value, "source": setting.source})
    return allowed
