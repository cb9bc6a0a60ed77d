# SPDX-License-Identifier: Apache-2.0
"""The kernel command line: what is replaced, what stays, and that a second time changes nothing."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harpctl.kargs.cmdline import (
    HugepageArgs,
    parse_argument,
    parse_size,
    replace_arguments,
    reserved_pages,
    reserves_exactly,
    split_words,
)
from harpctl.units import GIB, MIB

G50 = HugepageArgs(page_size=GIB, count=50)
M100 = HugepageArgs(page_size=2 * MIB, count=100)
OURS = "default_hugepagesz=1GB hugepagesz=1GB hugepages=50"
OURS_2M = "default_hugepagesz=2M hugepagesz=2M hugepages=100"


def test_words_are_those_of_the_contract() -> None:
    assert G50.words() == ("default_hugepagesz=1GB", "hugepagesz=1GB", "hugepages=50")
    assert str(M100) == OURS_2M


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1G", GIB),
        ("1GB", GIB),
        ("1g", GIB),
        ("1024M", GIB),
        ("1048576K", GIB),
        ("1073741824", GIB),
        ("0x40000000", GIB),
        ("2M", 2 * MIB),
        ("2048k", 2 * MIB),
        ("010M", 8 * MIB),
        ("", None),
        ("G", None),
        ("089", None),
    ],
)
def test_sizes_as_the_kernel_reads_them(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", OURS),
        ("ro quiet", f"ro quiet {OURS}"),
        (f"ro quiet {OURS}", f"ro quiet {OURS}"),
        (f"{OURS} {OURS} quiet", f"quiet {OURS}"),  # what the original's sed leaves after two runs
        ("hugepagesz=1G hugepages=8 ro", f"ro {OURS}"),
        ("ro default-hugepagesz=1024M hugepagesz=1048576K hugepages=8", f"ro {OURS}"),
        ("hugepages=512 ro", f"hugepagesz=2M hugepages=512 ro {OURS}"),  # the default size becomes 1 GiB
        ("default_hugepagesz=2M ro hugepages=512", f"ro hugepagesz=2M hugepages=512 {OURS}"),
        ("ro default_hugepagesz=1G hugepages=4", f"ro {OURS}"),
        (
            "hugepagesz=2M hugepages=512 hugepagesz=1G hugepages=4 ro",
            f"hugepagesz=2M hugepages=512 ro {OURS}",
        ),
        ("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=5", f"hugepagesz=2M hugepages=5 {OURS}"),
        ("hugepagesz=1G quiet hugepages=4", f"quiet {OURS}"),
        (f"ro {OURS_2M}", f"ro {OURS}"),  # an earlier setup with the other size
        ('ro dyndbg="file a.c +p; hugepages=3"', f'ro dyndbg="file a.c +p; hugepages=3" {OURS}'),
        ("ro  splash   hugepagesz=1G  quiet ", f"ro  splash  quiet {OURS} "),
        ("ro nohugepages xhugepages=3 hugepages_x=1", f"ro nohugepages xhugepages=3 hugepages_x=1 {OURS}"),
        ("ro -- hugepages=3", f"ro {OURS} -- hugepages=3"),
        ("hugepagesz=1G hugepages=7 -- 3", f"{OURS} -- 3"),
    ],
)
def test_replaced(old: str, new: str) -> None:
    assert replace_arguments(old, G50) == new


def test_switching_the_size_leaves_no_stale_pair() -> None:
    assert replace_arguments(f"ro {OURS} quiet", M100) == f"ro quiet {OURS_2M}"
    assert (
        replace_arguments(f"ro hugepagesz=1G hugepages=2 {OURS}", M100)
        == f"ro hugepagesz=1G hugepages=2 {OURS_2M}"
    )


def test_a_bare_count_means_what_the_kernel_takes_it_for() -> None:
    arm = msgspec.structs.replace(G50, kernel_default=512 * MIB)
    assert replace_arguments("ro hugepages=4", arm) == f"ro hugepagesz=524288K hugepages=4 {OURS}"
    assert replace_arguments("ro hugepages=4", M100) == f"ro {OURS_2M}"
    assert reserved_pages("ro hugepages=4 hugepagesz=1G hugepages=2") == {2 * MIB: 4, GIB: 2}
    assert reserved_pages("hugepages=4 default_hugepagesz=1G -- hugepages=9") == {GIB: 4}
    assert reserved_pages("hugepagesz=1G hugepages=0:25,1:20") == {GIB: 45}


@pytest.mark.parametrize(
    ("cmdline", "result"),
    [
        (OURS, True),
        ("default_hugepagesz=1G hugepagesz=1G hugepages=50", True),
        ("hugepagesz=1G hugepages=50 ro default_hugepagesz=1G", True),
        ("default_hugepagesz=1G hugepages=50", True),
        (f"hugepagesz=2M hugepages=7 {OURS}", True),
        (f"{OURS} hugepagesz=2M hugepages=7", True),
        ("", False),
        ("hugepagesz=1G hugepages=50", False),  # the default size would stay 2 MiB
        (OURS.replace("50", "51"), False),
        (f"{OURS} hugepages=60", False),
        (f"{OURS} default_hugepagesz=2M", False),
        (f"-- {OURS}", False),
    ],
)
def test_holds(cmdline: str, result: bool) -> None:
    assert reserves_exactly(cmdline, G50) is result


SIZES = st.sampled_from(["1G", "1GB", "1024M", "2M", "2048K", "16G", "x", ""])
WORDS = st.one_of(
    st.sampled_from(["ro", "quiet", "--", 'a="b c"', "root=UUID=1-2", "$kernelopts", 'x="y', "nohugepages"]),
    st.builds("default_hugepagesz={}".format, SIZES),
    st.builds("hugepagesz={}".format, SIZES),
    st.builds("hugepages={}".format, st.integers(0, 60)),
    st.sampled_from([OURS, OURS_2M]),
)
BLANKS = st.sampled_from([" ", "  ", "\t", " \t "])


@st.composite
def draw_cmdline(draw: st.DrawFn) -> str:
    words = draw(st.lists(WORDS, max_size=8))
    line = draw(st.sampled_from(["", " "]))
    for word in words:
        line += word + draw(BLANKS)
    return line if draw(st.booleans()) else line.rstrip()


WANTED = st.builds(HugepageArgs, page_size=st.sampled_from([GIB, 2 * MIB]), count=st.integers(0, 60))


def _is_hugepage_word(word: str) -> bool:
    return parse_argument(word)[0] in {"default_hugepagesz", "hugepagesz", "hugepages"}


@given(draw_cmdline(), WANTED)
def test_replaced_holds_and_is_idempotent(cmdline: str, wanted: HugepageArgs) -> None:
    once = replace_arguments(cmdline, wanted)
    if cmdline.count('"') % 2:
        return  # the last word is open, so ours end up inside its quotes; test_open_quote
    assert reserves_exactly(once, wanted)
    assert replace_arguments(once, wanted) == once


@given(draw_cmdline(), WANTED)
def test_other_words_keep_their_order(cmdline: str, wanted: HugepageArgs) -> None:
    before = [word.text for word in split_words(cmdline) if not _is_hugepage_word(word.text)]
    if cmdline.count('"') % 2:
        return
    after = [
        word.text for word in split_words(replace_arguments(cmdline, wanted)) if not _is_hugepage_word(word.text)
    ]
    assert after == before


@given(draw_cmdline(), WANTED)
def test_pairs_of_other_sizes_stay(cmdline: str, wanted: HugepageArgs) -> None:
    foreign = "hugepagesz=16G hugepages=3"
    if cmdline.count('"') % 2 or "--" in cmdline:
        return
    assert foreign in replace_arguments(f"{cmdline} ro {foreign}", wanted)


def test_open_quote() -> None:
    assert not reserves_exactly(replace_arguments('ro x="y', G50), G50)
