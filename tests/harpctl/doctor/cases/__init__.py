# SPDX-License-Identifier: Apache-2.0
"""All cases of all checks, a file for each group of checks."""

from tests.harpctl.doctor.cases import (
    confs,
    drivers,
    enis,
    hugepages,
    limits,
    namespace,
    nccl,
    nccl_itself,
    peer,
    plugin,
    system,
    xdp,
)
from tests.harpctl.doctor.cases.case import CASES, Case

__all__ = [
    "CASES",
    "Case",
    "confs",
    "drivers",
    "enis",
    "hugepages",
    "limits",
    "namespace",
    "nccl",
    "nccl_itself",
    "peer",
    "plugin",
    "system",
    "xdp",
]
