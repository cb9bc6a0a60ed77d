# SPDX-License-Identifier: Apache-2.0
"""The one ssh client: the names of hosts, how ssh is started, and a command on a host, bounded in every way.

ssh is the system's, with the operator's own configuration, keys and known hosts; it asks nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from harpctl.errors import ExitCode, HarpError

SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15")
SSH_FAILED = 255  # what ssh itself returns
OUTPUT_BYTES_MAX = 16 << 20  # the most output of a host; statistics of many connections are the largest
ERROR_BYTES_MAX = 64 << 10
PART_BYTES = 64 << 10
HOSTS_MAX = 4096
HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
SLOTS = re.compile(r"[^:]+:\d+")  # host:8, as mpirun's -H takes it
COMMA = re.compile(r",(?![^\[]*\])")  # one that separates hosts, not the numbers within brackets
NUMBERS = re.compile(r"\[([^\[\]]*)\]")
RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
SSH_REMEDIES = (
    ("Host key verification failed", "Check the host's key and add it to known_hosts: ssh {host}"),
    ("Permission denied", "Let ssh in without a password: ssh-copy-id {host}"),
    ("Could not resolve", "Correct the name, or add it to /etc/hosts or ~/.ssh/config."),
    ("refused", "Start sshd there, or set its port in ~/.ssh/config."),
    ("timed out", "See whether the host is up and its port 22 open: ssh -v {host}"),
)

# ---- names of hosts ----


def parse_hosts(given: Sequence[str]) -> tuple[str, ...]:
    """Read the values of -H, each host once: lists of [USER@]HOST, gpu[1-8,11], or @FILE with one a line."""
    hosts: dict[str, None] = {}
    for word in (word.strip() for value in given for word in COMMA.split(value)):
        if word.startswith("@"):
            hosts.update(dict.fromkeys(_read_hosts(word[1:])))
        elif word:
            hosts.update(dict.fromkeys(_expand_word(word)))
    if not hosts:
        raise HarpError("-H names no host.", "Give it as -H host1,host2, -H gpu[1-8] or -H @FILE.", ExitCode.USAGE)
    return tuple(hosts)


def _read_hosts(name: str) -> Iterator[str]:
    """Read a host file: the first word of each line, as in MPI's; # begins a comment."""
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise HarpError(
            f"-H @{name}: the file cannot be read ({reason}).",
            "Give a file with one host a line.",
            ExitCode.USAGE,
        ) from None
    lines = (line.split("#")[0].split() for line in text.splitlines())
    return itertools.chain.from_iterable(_expand_word(words[0]) for words in lines if words)


def _expand_word(word: str) -> list[str]:
    """Return the hosts of a word in Slurm's notation: numbers and ranges in brackets, zeros in front kept."""
    parts = NUMBERS.split(word)  # text, numbers, text, ...
    choices = [_expand_numbers(word, part) if at % 2 else [part] for at, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > HOSTS_MAX:
        raise HarpError(f"-H {word}: these are more than {HOSTS_MAX} hosts.", "Name fewer.", ExitCode.USAGE)
    return [_check_host("".join(ones)) for ones in itertools.product(*choices)]


def _expand_numbers(word: str, text: str) -> list[str]:
    found: list[str] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part.strip())
        first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
        count = int(last) - int(first) + 1
        if not 0 < count <= HOSTS_MAX:
            raise HarpError(
                f"-H {word}: [{text}] is no list of numbers.", "Write it as gpu[1-8,11].", ExitCode.USAGE
            )
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def _check_host(host: str) -> str:
    if SLOTS.fullmatch(host):
        raise HarpError(
            f"-H {host}: neither slots nor ports go with a host.",
            f"Write {host.partition(':')[0]}; a port goes into ~/.ssh/config.",
            ExitCode.USAGE,
        )
    if not HOST.fullmatch(host):
        raise HarpError(f"-H {host}: this is no host name.", "Write it as [USER@]HOST.", ExitCode.USAGE)
    return host


# ---- commands ----


class Done(msgspec.Struct, frozen=True):
    """The result of a command on a host; of long outputs the beginning."""

    code: int | None  # None: it was ended for taking too long
    out: str
    err: str


def ssh_words(host: str, command: str) -> list[str]:
    """Return the program and its arguments that give one line to a host's login shell."""
    return [*SSH, "--", host, command]


def not_installed() -> HarpError:
    """Return the error of a machine without ssh."""
    return HarpError("ssh is not installed here.", "Install it: openssh-client.", ExitCode.MISSING)


def remedy_of(host: str, err: str) -> str:
    """Return what to do where ssh itself has failed with these words."""
    remedy = next((text for sign, text in SSH_REMEDIES if sign in err), "Try it by hand: ssh {host}")
    return remedy.format(host=host)


async def run_command(
    host: str, command: str, timeout_s: float, stdin: int | IO[bytes] = asyncio.subprocess.DEVNULL
) -> Done:
    """Run one line in a host's login shell. Raises HarpError without a local ssh.

    When cancelled, ssh is ended; what was begun on the host may still finish there.
    """
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *ssh_words(host, command), stdin=stdin, stdout=pipe, stderr=pipe
        )
    except FileNotFoundError:
        raise not_installed() from None
    if process.stdout is None or process.stderr is None:
        raise AssertionError(process)
    reading = (
        _read_beginning(process.stdout, OUTPUT_BYTES_MAX),
        _read_beginning(process.stderr, ERROR_BYTES_MAX),
    )
    try:
        out, err = await asyncio.wait_for(asyncio.gather(*reading), timeout_s)
        await asyncio.wait_for(process.wait(), timeout_s)
    except asyncio.TimeoutError:
        return Done(None, "", "")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


async def _read_beginning(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read all that a host writes, and return the beginning of it."""
    kept = bytearray()
    while part := await stream.read(PART_BYTES):
        kept += part[: bytes_max - len(kept)]
    return bytes(kept)
