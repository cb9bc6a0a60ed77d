# SPDX-License-Identifier: Apache-2.0
"""Cases of the checks of what NCCL does by itself."""

from __future__ import annotations

import subprocess

from msgspec.structs import replace

from harpctl.facts.model import Library
from tests.harpctl.doctor.cases.case import case
from tests.harpctl.doctor.world import World

NCCL = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"


def _build_library(world: World, text: str) -> None:
    """Put a library with a constant at NCCL's place."""
    code = f'const char text[] = "{text}";\n'
    target = world.root / NCCL.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)], input=code, text=True, check=True
    )


@case(
    "nccl.encryption",
    "warn",
    f"{NCCL} can encrypt NCCL's own sockets (ncclSetEncryption): the bootstrap, but not the data",
    "export NCCL_NET=Socket  # in jobs whose data has to be encrypted",
)
def can_encrypt(world: World) -> None:
    _build_library(world, "ncclCrypt: OpenSSL HKDF failed")


def can_not_encrypt(world: World) -> None:
    """Build it as the wheels of PyPI are."""
    _build_library(world, "ncclCrypt: TLS connection requested without TLS support")


@case("nccl.gdrcopy", "ok", f"NCCL 2.32.3 ({NCCL}) writes `WARN RMA/Socket : rma_socket requires GDRCopy`")
def no_gdrcopy(world: World) -> None:
    world.facts = replace(world.facts, libraries=(Library(path=NCCL, version="2.32.3"),))
