# SPDX-License-Identifier: Apache-2.0
"""Units of sizes, the one table by which they are read and written, powers of 1024; and runs of numbers."""

from __future__ import annotations

from collections.abc import Iterable

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
BYTES = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
LETTERS = ("G", "M", "K")  # what sizes are written with


def size_of(digits: str, unit: str) -> int:
    """Return the bytes of a number and its unit, such as "4" and "K"; "KB" is the same unit."""
    return int(digits) * BYTES[unit[:1].upper()]


def short_size(size: int) -> str:
    """Write a size with the largest unit that leaves a whole number: 128K, 2M, 1500."""
    unit = next((unit for unit in LETTERS if size and size % BYTES[unit] == 0), "")
    return f"{size // BYTES[unit]}{unit}"


def size_name(size: int) -> str:
    """Write a size in words, in its largest fitting unit with one decimal at most: 1 GiB, 2.5 MiB."""
    unit = next((unit for unit in LETTERS if size >= BYTES[unit]), "K")
    return f"{size / BYTES[unit]:.1f}".removesuffix(".0") + f" {unit}iB"


def number_ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers as ranges of ascending neighbours, both ends included, in the order given."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
