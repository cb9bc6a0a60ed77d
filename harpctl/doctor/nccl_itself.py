# SPDX-License-Identifier: Apache-2.0
"""Checks of what NCCL does by itself and users ascribe to HARP: its encryption, its warning of GDRCopy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import CheckResult, check, warn
from harpctl.facts.elf import find_constant, version_key

# A text of an NCCL that was built with OpenSSL. Encryption has no variable: jobs call ncclSetEncryption.
ENCRYPTS = re.compile(rb"(ncclCrypt: OpenSSL )")
ONE_SIDED_SINCE = (2, 32)  # NCCL with one-sided operations over sockets
GDRCOPY = "/dev/gdrdrv"


def _can_encrypt(context: Context, path: str) -> bool:
    file = context.host.open_file(path)
    if file is None:
        return False
    with file:
        return bool(find_constant(file, ENCRYPTS))


@check("nccl.encryption", "No NCCL here encrypts what HARP then does not", needs.library, validates=False)
def check_encryption(context: Context) -> Iterator[CheckResult]:
    """Look for an NCCL that can encrypt its sockets; what a plugin carries is not among them."""
    for library in context.facts.libraries:
        if _can_encrypt(context, library.path):
            yield warn(
                f"{library.path} can encrypt NCCL's own sockets (ncclSetEncryption): the bootstrap, but not"
                " the data that HARP carries.",
                "export NCCL_NET=Socket  # in jobs whose data has to be encrypted",
            )


@check("nccl.gdrcopy", "What NCCL says of GDRCopy is known", needs.library, validates=False)
def check_gdrcopy(context: Context) -> Iterator[CheckResult]:
    """Say that the warning of NCCL 2.32 about GDRCopy is neither HARP's nor an error."""
    for library in context.facts.libraries:
        if version_key(library.version) >= ONE_SIDED_SINCE and not context.host.exists(GDRCOPY):
            yield CheckResult(
                "ok",
                f"NCCL {library.version} ({library.path}) writes `WARN RMA/Socket : rma_socket requires"
                " GDRCopy` in each job here. That is harmless, and not HARP's.",
            )
