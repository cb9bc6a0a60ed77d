# SPDX-License-Identifier: Apache-2.0
"""Communicators that come and go over HARP: made of others, after a rank has died, by the hundred.

A plan lists the steps, which all ranks take (`harp-nccl --help`). Data is checked after each.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import pytest

from harplab.bench.nccl_run import NcclRun
from tests.nccl import wheels
from tests.nccl.conftest import MakeBox
from tests.nccl.test_life import REMOTE_ERROR

pytestmark = [pytest.mark.nccl, pytest.mark.lab]

RELEASES = {release.version: release for release in wheels.RELEASES}
SPLITS = [RELEASES["2.18.3"], wheels.NEWEST]  # the first release of the tests that has the call, and the last
SHRINKS = [RELEASES["2.27.7"], wheels.NEWEST]
GROWS = [RELEASES["2.29.7"], wheels.NEWEST]  # these have ncclCommRevoke, Suspend and Resume too
SIZES = ("64K", "1K")
NCCL_FAILED, MISSING = 3, 5  # harp-nccl's exit codes
# NCCL's buffers, small where there are hundreds.
SMALL_BUFFERS = {
    "NCCL_BUFFSIZE": "65536",
    "NCCL_LL_BUFFSIZE": "32768",
    "NCCL_LL128_BUFFSIZE": "61440",
    "NCCL_MAX_NCHANNELS": "1",
}
COMMUNICATOR_MIB = 80  # a rank's, measured: 65 MiB of it are the pool of NCCL's proxy, in shared memory


def run_steps(
    make_box: MakeBox,
    environment: dict[str, str],
    steps: Sequence[str],
    *options: str,
    ranks: int = 4,
    release: wheels.Release = wheels.NEWEST,
    timeout_s: int = 120,
) -> NcclRun:
    """Run a plan in which each rank is on a host of its own."""
    return make_box(2 if ranks == 2 else 4, release).run(
        *("--op=allreduce", f"--sizes={','.join(SIZES)}", f"--plan={'; '.join(steps)}", *options),
        environment=environment,
        ranks=ranks,
        timeout_s=timeout_s,
    )


def check_run(run: NcclRun, operations: Sequence[int], *, kills: bool = False, network: str = "HARP") -> None:
    """The ranks verified so many operations each (0: it died), no element was wrong, over this network."""
    description = run.describe()
    assert run.code == 0, description
    last = {line.rank: line for line in run.plan_cycles}
    found = [last[rank].operations if rank in last else 0 for rank in range(len(operations))]
    assert found == list(operations), description
    assert {line.wrong for line in run.plan_cycles} == {0}, description
    assert run.networks == {network}, description
    assert f"via NET/{network}/" in run.log, description
    assert kills or not [line for line in run.log.splitlines() if "WARN NET/HARP" in line], description


@pytest.mark.parametrize("first", ["parent", "child"])
@pytest.mark.parametrize("resources", ["share", ""])
@pytest.mark.parametrize("release", SPLITS, ids=str)
def test_split(
    make_box: MakeBox, harp: dict[str, str], release: wheels.Release, resources: str, first: str
) -> None:
    """Two of one colour, one alone, one of none; parent and children are used at once; either ends first."""
    other = "parent" if first == "child" else "child"
    run = run_steps(
        make_box,
        harp,
        [
            "init parent",
            "run parent",
            f"split child from=parent colours=0,0,1,- keys=2,1,0,0 {resources}",
            *("run child parent", "run child op=alltoall"),
            *(f"destroy {first}", f"run {other} op=sendrecv", f"destroy {other}"),
        ],
        release=release,
    )
    without_child = 2 + 2 + (2 if first == "child" else 0)
    check_run(run, [10, 10, 10, without_child])


def any_order(seed: int) -> list[str]:
    """Make a plan of communicators of communicators, which are used and destroyed in any order."""
    draw = random.Random(seed)
    steps, alive = ["init g0", "run g0"], ["g0"]
    for number in range(1, 6):
        parent = draw.choice(alive)
        colours = ",".join(draw.choice("0001-") for _ in range(4))
        steps.append(f"split g{number} from={parent} colours={colours}{draw.choice(['', ' share'])}")
        alive.append(f"g{number}")
        steps.append(f"run {' '.join(draw.sample(alive, min(len(alive), 3)))}")
        if draw.random() < 0.4:
            steps.append(f"destroy {alive.pop(draw.randrange(len(alive)))}")
            steps.extend(f"run {name} op=alltoall" for name in alive[:1])
        if not alive:
            break
    draw.shuffle(alive)
    for name in alive:
        steps.extend([f"run {name}", f"destroy {name}"])
    return steps


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("release", SPLITS, ids=str)
def test_any_order(make_box: MakeBox, harp: dict[str, str], release: wheels.Release, seed: int) -> None:
    run = run_steps(make_box, harp, any_order(seed), release=release)
    assert run.plan_cycles, run.describe()
    check_run(run, [line.operations for line in sorted(run.plan_cycles, key=lambda line: line.rank)])
    assert min(line.operations for line in run.plan_cycles) >= 4, run.describe()


@pytest.mark.parametrize("resources", ["share", ""])
@pytest.mark.parametrize("release", SHRINKS, ids=str)
def test_shrink(make_box: MakeBox, harp: dict[str, str], release: wheels.Release, resources: str) -> None:
    """Twice, the second of the first."""
    run = run_steps(
        make_box,
        harp,
        [
            *("init a", "run a"),
            *(f"shrink b from=a without=1 {resources}", "run b", "run b op=alltoall"),
            *(f"shrink c from=b without=0 {resources}", "run b c"),
            *("destroy b", "run c", "destroy a", "run c", "destroy c"),
        ],
        release=release,
    )
    check_run(run, [8, 2, 14, 14])


@pytest.mark.parametrize("mode", ["abort", ""])
@pytest.mark.parametrize("release", SHRINKS, ids=str)
def test_shrink_after_a_kill(make_box: MakeBox, harp: dict[str, str], release: wheels.Release, mode: str) -> None:
    """A rank is killed between operations; the others go on in a communicator without it."""
    run = run_steps(
        make_box,
        harp,
        [
            *("init a", "run a", "run a op=alltoall", "kill a ranks=1"),
            *(f"shrink b from=a without=1 {mode}", "run b", "run b op=alltoall"),
            *("abort a", "run b", "destroy b"),
        ],
        release=release,
    )
    check_run(run, [10, 0, 10, 10], kills=True)


@pytest.mark.parametrize("release", SHRINKS, ids=str)
def test_shrink_ends_what_hangs(make_box: MakeBox, harp: dict[str, str], release: wheels.Release) -> None:
    """A rank does not take part in an operation; the abort ends it on the others."""
    run = run_steps(
        make_box,
        harp,
        [
            *("init a", "run a", "start a ranks=0,2,3", "shrink b from=a without=1 abort", "run b"),
            *("abort a", "run b op=alltoall", "destroy b"),
        ],
        release=release,
    )
    check_run(run, [6, 2, 6, 6])


def test_new_communicator_after_a_loss(make_box: MakeBox, harp: dict[str, str]) -> None:
    """A rank is killed in an operation: a remote error, an abort, and a new communicator of the others."""
    run = run_steps(
        make_box,
        harp,
        [
            *("init a", "run a", "lose a ranks=2"),
            *("abort a", "init b ranks=3,1,0", "run b", "run b op=alltoall", "destroy b"),
        ],
    )
    check_run(run, [6, 6, 0, 6], kills=True)
    assert run.losses, run.describe()
    assert {loss.error for loss in run.losses} == {REMOTE_ERROR}, run.describe()
    assert all("NET/HARP: lost" in loss.last_error for loss in run.losses), run.describe()


@pytest.mark.parametrize("network", ["HARP", "Socket"])
def test_nccl_shrinks_no_communicator_with_an_error(make_box: MakeBox, harp: dict[str, str], network: str) -> None:
    """NCCL's own rule, the same over its sockets: whoever has seen an error has to abort."""
    run = run_steps(
        make_box,
        {**harp, "NCCL_NET": network},
        ["init a", "run a", "lose a ranks=1", "shrink b from=a without=1 abort", "abort a", "destroy b"],
        ranks=2,
    )
    assert run.code == NCCL_FAILED, run.describe()
    assert run.networks == {network}, run.describe()
    assert f"shrink b from=a without=1 abort: {REMOTE_ERROR}" in run.output, run.describe()


@pytest.mark.parametrize("release", GROWS, ids=str)
def test_grow(make_box: MakeBox, harp: dict[str, str], release: wheels.Release) -> None:
    """Two ranks become three, and three four; a shrunk communicator grows again."""
    run = run_steps(
        make_box,
        harp,
        [
            *("init a ranks=2,0", "run a", "grow b from=a with=3", "run b", "destroy a", "run b op=alltoall"),
            *("grow c from=b with=1", "run c", "destroy b", "run c op=alltoall"),
            *("shrink d from=c without=0", "destroy c", "run d", "grow e from=d with=0", "destroy d"),
            *("run e", "destroy e"),
        ],
        release=release,
    )
    check_run(run, [12, 8, 14, 12])


@pytest.mark.parametrize("release", GROWS, ids=str)
def test_revoke(make_box: MakeBox, harp: dict[str, str], release: wheels.Release) -> None:
    """An operation hangs, since a rank does not take part; the revoked communicator is split and shrunk."""
    run = run_steps(
        make_box,
        harp,
        [
            *("init a", "run a", "start a ranks=0,2,3", "revoke a"),
            *("split b from=a colours=0,0,1,1", "run b", "shrink c from=a without=0", "run b c"),
            *("destroy a", "run c op=alltoall", "destroy c", "run b", "destroy b"),
        ],
        release=release,
    )
    check_run(run, [8, 12, 12, 12])


@pytest.mark.parametrize("release", GROWS, ids=str)
def test_suspend_and_resume(make_box: MakeBox, harp: dict[str, str], release: wheels.Release) -> None:
    """One communicator is suspended while another is used."""
    run = run_steps(
        make_box,
        harp,
        [
            *("init a", "run a", "init b", "suspend a", "run b", "resume a", "run a b"),
            *("suspend b", "suspend a", "resume a", "run a op=alltoall", "resume b", "run b"),
            *("destroy a", "destroy b"),
        ],
        release=release,
    )
    check_run(run, [12, 12, 12, 12])


@pytest.mark.parametrize(
    ("release", "step", "call"),
    [
        (RELEASES["2.13.4"], "split b from=a", "ncclCommSplit: NCCL 2.18"),
        (RELEASES["2.25.1"], "shrink b from=a without=1", "ncclCommShrink: NCCL 2.27"),
        (RELEASES["2.27.7"], "grow b from=a with=1", "ncclCommGrow: NCCL 2.29"),
        (RELEASES["2.27.7"], "revoke a", "ncclCommRevoke: NCCL 2.28"),
        (RELEASES["2.27.7"], "suspend a", "ncclCommSuspend: NCCL 2.29"),
        (RELEASES["2.27.7"], "resume a", "ncclCommResume: NCCL 2.29"),
    ],
    ids=lambda value: str(value).split(":")[0].split()[0],
)
def test_a_release_lacks_the_call(
    make_box: MakeBox, harp: dict[str, str], release: wheels.Release, step: str, call: str
) -> None:
    ends = ["destroy a", "destroy b"] if " b " in step else ["destroy a"]
    init = "init a" if "without" in step else "init a ranks=0"
    run = run_steps(make_box, harp, [init, step, *ends], ranks=2, release=release)
    assert run.code == MISSING, run.describe()
    assert f"has no {call} or newer is needed" in run.output, run.describe()


@pytest.mark.parametrize("other", [RELEASES["2.18.3"], RELEASES["2.27.7"]], ids=str)
def test_two_libraries(make_box: MakeBox, harp: dict[str, str], other: wheels.Release) -> None:
    """Two releases of NCCL in one process, with tables of their own, use HARP at once."""
    second = make_box(2, other).library
    run = run_steps(
        make_box,
        harp,
        [
            *("init b lib=1", "init a lib=0", "run a b", "split c from=b colours=0,0 share", "run a b c"),
            *("destroy b", "run a c op=alltoall", "destroy a", "run c", "init d lib=0", "run c d"),
            *("destroy c", "run d", "destroy d"),
        ],
        f"--lib={second}",
        ranks=2,
    )
    check_run(run, [22, 22])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("count", [60, 200])
def test_many_communicators(make_box: MakeBox, harp: dict[str, str], count: int) -> None:
    """A KV transfer makes one for each pair of processes: they live at once, and are made again."""
    needed_mib = 2 * count * COMMUNICATOR_MIB
    available_mib = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    if available_mib < needed_mib:
        pytest.skip(f"{needed_mib} MiB of memory are needed, {available_mib} MiB are free")
    run = run_steps(
        make_box,
        {**harp, **SMALL_BUFFERS},
        [f"init p count={count}", "run p op=sendrecv", "destroy p", "init q count=8", "run q", "destroy q"],
        ranks=2,
        timeout_s=900,
    )
    check_run(run, [2 * (count + 8)] * 2)


ROUNDS, SOCKET_ROUNDS = 500, 60
FIRST = 5
COMPARED = 10  # the least of so many rounds counts: threads of the last one may still be ending
ROUND = [
    *("init a", "run a", "split b from=a colours=0,0 share", "split c from=b colours=0,0 keys=1,0"),
    *("destroy a", "run b c op=alltoall", "destroy c", "run b", "destroy b"),
]
EXCESS_KIB_A_ROUND = 4  # NCCL itself loses some KiB with each communicator, over its sockets too


def use_rounds(make_box: MakeBox, environment: dict[str, str], rounds: int) -> list[float]:
    """Check that each rank has as many files and threads as at first; return its KiB of growth a round."""
    run = run_steps(
        make_box,
        {**environment, **SMALL_BUFFERS, "MALLOC_ARENA_MAX": "1"},
        ROUND,
        f"--cycles={rounds}",
        ranks=2,
        timeout_s=3600,
    )
    check_run(run, [8 * rounds] * 2, network=environment["NCCL_NET"])
    growth = []
    for rank in range(2):
        own = [line for line in run.plan_cycles if line.rank == rank]
        assert [line.cycle for line in own] == list(range(1, rounds + 1)), run.describe()
        at_first, at_last = own[FIRST : FIRST + COMPARED], own[-COMPARED:]
        assert min(line.files for line in at_last) == min(line.files for line in at_first)
        assert min(line.threads for line in at_last) == min(line.threads for line in at_first)
        grown = min(line.memory_kib for line in at_last) - min(line.memory_kib for line in at_first)
        growth.append(grown / (rounds - FIRST - COMPARED))
    return growth


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_nothing_leaks(make_box: MakeBox, harp: dict[str, str]) -> None:
    """Files, threads and memory after 500 rounds are those after 5, but for what NCCL itself loses."""
    growth = use_rounds(make_box, harp, ROUNDS)
    of_sockets = use_rounds(make_box, {**harp, "NCCL_NET": "Socket"}, SOCKET_ROUNDS)
    print(f"KiB a round: {growth} over HARP, {of_sockets} over NCCL's sockets")
    assert max(growth) < min(of_sockets) + EXCESS_KIB_A_ROUND
