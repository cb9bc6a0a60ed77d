# SPDX-License-Identifier: Apache-2.0
"""The calls of libc that fail in each run: every call of every function that the plugin calls, with each
errno that the kernel may give it there.

An errno that the kernel gives only in a certain state is no case: EAGAIN of a TCP socket that has room would
keep an edge-triggered epoll set silent for ever.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODES = ("inline", "thread")  # over loopback
XDP_MODES = ("xdp-copy", "xdp")  # the first fails where AF_XDP does, the second goes on with sockets
TIMEOUT_S = 300  # inject's own waits are shorter where the machine has a core for it
# Calls that NCCL's polling or the data path makes: there are thousands, and a few positions are tried.
POSITIONS = (1, 2, 3, 4, 5, 7, 10, 14, 20, 30, 50, 100)
ALL_UP_TO = 90
FIRST_OF_LASTING = (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 30, 50)
PASSING = (errno.EINTR, errno.ECONNABORTED)  # never for good
# Nor these of AF_XDP's calls: a kick fails so while the kernel's queue is full, which empties, and a message
# of netlink was lost once. What a kick does not send the next poll does: such a run is slow without end.
XDP_PASSING = {"sendto": (errno.ENOBUFS, errno.EBUSY), "recv": (errno.ENOBUFS,)}

SANITIZER_OPTIONS = {"ASAN_OPTIONS": "exitcode=66", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}

MEMORY = (errno.ENOMEM,)
FILES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
OPEN = (errno.EMFILE, errno.ENOENT, errno.EACCES)
SOCKET_MEMORY = (errno.ENOBUFS, errno.ENOMEM)
TCP_SEND = (errno.ECONNRESET, errno.EPIPE, errno.EINTR)
TCP_RECEIVE = (errno.ECONNRESET, errno.ETIMEDOUT, errno.EINTR)
ERRNOS: dict[str, tuple[int, ...]] = {
    "__register_atfork": MEMORY,
    "accept4": (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED, errno.EINTR),
    "adjtimex": (errno.EPERM,),
    "aligned_alloc": MEMORY,
    "bind": (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENOMEM),
    "calloc": MEMORY,
    "connect": (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.ECONNREFUSED, errno.ENOBUFS),
    "epoll_create1": FILES,
    "epoll_ctl": (errno.ENOSPC, errno.ENOMEM),
    "epoll_wait": (errno.EINTR,),
    "eventfd": FILES,
    "fcntl": (errno.EPERM, errno.EINVAL),
    "fstat": (errno.EIO,),
    "fstatfs": (errno.EIO,),
    "ftruncate": (errno.ENOSPC, errno.EIO),
    "gethostname": (errno.ENAMETOOLONG,),
    "getifaddrs": (errno.ENOMEM, errno.EMFILE),
    "getrandom": (errno.ENOSYS, errno.EINTR),
    "getrlimit": (errno.EINVAL,),
    "getsockname": (errno.ENOBUFS,),
    "getsockopt": SOCKET_MEMORY,
    "if_indextoname": (errno.EMFILE, errno.ENXIO),
    "ioctl": (errno.EINVAL,),
    "listen": (errno.EADDRINUSE, errno.ENOMEM),
    "madvise": (errno.ENOMEM, errno.EINVAL),
    "malloc": MEMORY,
    "memfd_create": FILES,
    "mkdir": (errno.EACCES, errno.ENOSPC),
    "mmap": (errno.ENOMEM, errno.EPERM),
    "open": OPEN,
    "openat": OPEN,
    "opendir": OPEN,
    "pipe2": FILES,
    "poll": (errno.EINTR, errno.ENOMEM),
    "posix_fallocate": (errno.ENOSPC, errno.EIO, errno.EINTR),
    "ppoll": (errno.EINTR, errno.ENOMEM),
    "prctl": (errno.EINVAL,),
    "pthread_create": (errno.EAGAIN,),
    "read": (errno.EINTR, errno.EIO),
    "readv": TCP_RECEIVE,
    "realpath": (errno.ENOENT, errno.ENOMEM),
    "recv": TCP_RECEIVE,
    "recvfrom": SOCKET_MEMORY,
    "recvmmsg": (errno.EINTR, errno.ENOMEM, errno.ECONNREFUSED),
    "recvmsg": (errno.EINTR, errno.ENOMEM, errno.ECONNREFUSED),
    "rename": (errno.EACCES, errno.ENOSPC),
    "sched_setaffinity": (errno.EINVAL,),
    "send": TCP_SEND,
    "sendmmsg": (errno.ENOBUFS, errno.EPERM, errno.ENETUNREACH, errno.EINTR, errno.ECONNREFUSED),
    "sendmsg": (errno.ENOBUFS, errno.EPERM, errno.ENETUNREACH, errno.EINTR, errno.ECONNRESET, errno.EPIPE),
    "sendto": SOCKET_MEMORY,
    "setrlimit": (errno.EPERM,),
    "setsockopt": (errno.EPERM, errno.ENOBUFS),
    "socket": (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    "splice": (errno.ENOMEM, errno.EINVAL),
    "stat": (errno.ENOENT,),
    "syscall": (errno.ENOSYS, errno.EPERM),
    "sysconf": (errno.EINVAL,),
    "unlink": (errno.EACCES,),
    "unlinkat": (errno.EACCES,),
    "vmsplice": (errno.ENOMEM, errno.EINVAL),
    "write": (errno.ENOSPC, errno.EINTR),
}
# What AF_XDP calls, and what makes it.
XDP_ERRNOS: dict[str, tuple[int, ...]] = {
    "aligned_alloc": MEMORY,
    "bind": (errno.EBUSY, errno.ENOMEM, errno.EOPNOTSUPP),
    "calloc": MEMORY,
    "getsockopt": (errno.EINVAL, errno.ENOMEM),
    "if_indextoname": (errno.ENXIO,),
    "ioctl": (errno.EOPNOTSUPP, errno.ENODEV),
    "madvise": (errno.ENOMEM,),
    "mmap": (errno.ENOMEM,),
    "pthread_create": (errno.EAGAIN,),
    "recv": (errno.EINTR, errno.ENOBUFS),
    "sendto": (errno.ENOBUFS, errno.EBUSY, errno.ENETDOWN, errno.ENXIO),
    "setsockopt": (errno.ENOBUFS, errno.ENOMEM, errno.EPERM),
    "socket": (errno.EMFILE, errno.EAFNOSUPPORT, errno.EPERM),
    "syscall": (errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.EBUSY, errno.EINVAL),
}

# Where a call that makes something fails with such an error, the WARN has the limit's number and its setting.
MAKERS = (
    *("aligned_alloc", "bind", "calloc", "connect", "epoll_create1", "eventfd", "getifaddrs"),
    *("malloc", "mmap", "opendir", "pthread_create", "socket"),
)
SHORTAGES: dict[int, str] = {
    errno.EMFILE: r"all \d+ files open .*\(ulimit -n\)",
    errno.ENFILE: r"all files open that it may, \d+: .*\(sysctl fs\.file-max\)",
    errno.ENOMEM: r"\d+ MiB of at most .*\(ulimit -v\), .*memory\.max",
    errno.ENOBUFS: r"TCP has \d+ of at most [\d ]+ pages .*tcp_mem|\(ulimit -l\)",
    errno.EAGAIN: r"pids\.max.*\(ulimit -u\)",
    errno.EADDRINUSE: r"no local port of the range \d+ \d+ .*ip_local_port_range",
    errno.EADDRNOTAVAIL: r"no local port of the range \d+ \d+ .*ip_local_port_range",
}
TOO_SLOW = re.compile(r" for \d+ s: (no answer|Connection re)")  # on a loaded machine, whatever has failed
WARN = re.compile(r"^process 0: error in .*? WARN: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """The n-th call of a function fails, or that and all later ones (`lasts`)."""

    mode: str
    function: str
    n: int
    lasts: bool
    error: int

    @property
    def words(self) -> list[str]:
        """Return what `inject` takes behind the plugin's file."""
        return [self.mode, self.function, str(self.n), "on" if self.lasts else "once", str(self.error)]


def _run_clean(words: list[str]) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HARP_", "NCCL_"))}
    clean |= SANITIZER_OPTIONS
    return subprocess.run(
        words, env=clean, capture_output=True, text=True, errors="replace", check=False, timeout=TIMEOUT_S
    )


def count_calls(program: Path, plugin: Path, mode: str) -> dict[str, int]:
    """Return how often a run without faults calls each function."""
    done = _run_clean([str(program), str(plugin), mode])
    assert done.returncode == 0, done.stdout + done.stderr
    assert (mode in XDP_MODES) == (": driver xdp " in done.stdout), done.stdout
    return {name: int(count) for name, count in re.findall(r"^calls (\S+) (\d+)$", done.stdout, re.MULTILINE)}


def cases_of(mode: str, function: str, count: int) -> Iterator[Case]:
    """List the cases of a function that a run calls so often."""
    positions = range(1, count + 1) if count <= ALL_UP_TO else POSITIONS
    passing = (*PASSING, *(XDP_PASSING.get(function, ()) if mode in XDP_MODES else ()))
    for error in (XDP_ERRNOS if mode in XDP_MODES else ERRNOS)[function]:
        for n in positions:
            yield Case(mode, function, n, False, error)
            if error not in passing and n in FIRST_OF_LASTING:
                yield Case(mode, function, n, True, error)


def run_case(program: Path, plugin: Path, case: Case) -> str:
    """Run a case; return what went wrong, with the command that repeats it, or nothing."""
    words = [str(program), str(plugin), *case.words]
    try:
        done = _run_clean(words)
    except subprocess.TimeoutExpired:
        return f"HANG of more than {TIMEOUT_S} s: {' '.join(words)}"
    text = f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    warn = WARN.search(done.stdout)
    is_judged = warn and case.function in MAKERS and not TOO_SLOW.search(warn[1])
    if warn and is_judged and not re.search(SHORTAGES.get(case.error, ""), warn[1]):
        return f"The WARN does not say what is short: {text}"
    return text if done.returncode else ""
