# SPDX-License-Identifier: Apache-2.0
"""The C tests and the simulation, compiled for aarch64 and run by qemu's user mode.

qemu keeps the order of an x86-64 host's loads and stores, which is stronger than aarch64's. So these tests
show that the code, its atomics included, computes the same on aarch64, not that its barriers suffice; that
ThreadSanitizer checks, against C11's model (`./harp_setup test --tsan`).
"""

from __future__ import annotations

import subprocess

import pytest
from elftools.elf.elffile import ELFFile

from tests import native
from tests.aarch64.machine import NAME, RUN_TIMEOUT_S, Machine, build_targets

pytestmark = [pytest.mark.aarch64, pytest.mark.timeout(native.BUILD_TIMEOUT_S + 2 * RUN_TIMEOUT_S)]

# Whole programs that are left out, and single tests that qemu-user has nothing for.
WITHOUT = {
    "script/test_sharing": "takes more than ten minutes: the simulation runs the same code",
    "script/test_striping": "takes more than ten minutes: the simulation runs the same code",
    "unit/test_hops": "no neighbours over netlink",
    "unit/test_neighbour": "no neighbours over netlink",
    "unit/test_xdp": "no bpf, and no AF_XDP",
    "unit/test_xdp_filter": "no bpf",
    "unit/test_xdp_program": "no bpf",
}
WITHOUT_TEST = {
    "test_not_in_children": "no MADV_DONTFORK",
    "test_no_huge_page_is_put_under_it": "no MADV_NOHUGEPAGE",
    "test_memory_is_on_the_node_of_the_core": "no memory policies",
    "test_policy_of_a_thread": "no memory policies",
    "test_limits_of_the_host_are_named": "no RLIMIT_AS",
    "test_round_trips_are_reported": "no TCP_INFO",
    "test_progress_is_seen_on_any_kernel": "no TCP_INFO",
    "test_segments_are_worked_out": "no TCP_INFO",
}
SEEDS = 200
PROGRAMS = [name for name in native.list_programs(NAME) if name not in WITHOUT]
FENCES = {  # words of the instructions by which base/gpu_fence.h orders what a GPU writes and reads
    "dmb oshst": 0xD50332BF,
    "dmb oshld": 0xD50331BF,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_c_program(arm: Machine, program: str) -> None:
    ran = native.run_program(program, NAME, arm.cross)
    wrong = {
        name: ran.outcomes.get(name, "not run")
        for name in native.test_names(program)
        if ran.outcomes.get(name) not in {"OK", "SKIPPED"} and name not in WITHOUT_TEST
    }
    assert wrong == {}, ran.output
    assert "OK" in ran.outcomes.values(), ran.output
    assert ran.code == sum(name in WITHOUT_TEST and found == "FAILED" for name, found in ran.outcomes.items())


def test_the_checksum_has_the_instructions_of_aarch64(arm: Machine) -> None:
    """Each case of test_crc32c.c compares the kernel for aarch64 and the portable one with a bitwise one."""
    ran = native.run_program("unit/test_crc32c", NAME, arm.cross)
    assert ran.code == 0, ran.output
    assert "  arm64\n" in ran.output
    assert "(no arm64 here)" not in ran.output


def test_simulation(arm: Machine) -> None:
    folder = build_targets(f"build/{NAME}/sim")
    done = arm.run(folder / "sim", "--seeds", str(SEEDS))
    assert done.returncode == 0, done.stdout[-native.TAIL_CHARS :]
    assert f"{SEEDS} seeds" in done.stdout


def test_traces_are_those_of_x86_64(arm: Machine) -> None:
    """One seed takes the same course on both machines."""
    folder = build_targets(f"build/{NAME}/sim")
    built = native.run_make("build/sim")
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    words = ["--seed", "7"]
    here = subprocess.run([folder.parent / "sim", *words], capture_output=True, text=True, check=True)
    assert arm.run(folder / "sim", *words).stdout == here.stdout + here.stderr


@pytest.mark.parametrize("fence", FENCES)
def test_the_plugin_has_fences_for_gpus(arm: Machine, fence: str) -> None:
    del arm
    with (build_targets("all") / "libnccl-net.so").open("rb") as file:
        text = ELFFile(file).get_section_by_name(".text")
        assert text
        code = text.data()
    words = {int.from_bytes(code[at : at + 4], "little") for at in range(0, len(code), 4)}
    assert FENCES[fence] in words


@pytest.mark.parametrize("name", ["libnccl-net.so", "harp-perf"])
def test_segments_suit_the_largest_pages(arm: Machine, name: str) -> None:
    """A kernel with pages of 64 KiB loads no file whose segments are less far apart."""
    del arm
    with (build_targets("all") / name).open("rb") as file:
        loaded = [each["p_align"] for each in ELFFile(file).iter_segments("PT_LOAD")]
    assert loaded
    assert min(loaded) >= 65536
