# SPDX-License-Identifier: Apache-2.0
"""Starts a command with the rights of a container without privileges, as in docs/how-to/kubernetes.md.

That is: another user than root, no capability, no way to get one, the resource limits of a fresh kernel, and
the system calls that the default seccomp profile of container runtimes refuses to who has no capability.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import sys

import pyseccomp

USER = 65534
CAPBSET_DROP = 24  # of prctl
LIMITS = {resource.RLIMIT_MEMLOCK: 64 << 10, resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_CORE: 0}
# Docker's documentation, "Significant syscalls blocked by the default profile", and io_uring since.
REFUSED = """
acct add_key bpf clock_adjtime clock_settime create_module delete_module finit_module get_mempolicy
init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl
lookup_dcookie mbind mount move_pages nfsservctl open_by_handle_at perf_event_open pivot_root query_module
quotactl reboot request_key set_mempolicy setns settimeofday swapoff swapon sysfs umount2 unshare uselib
userfaultfd ustat
"""
HIDDEN = ("clone3",)  # answered as by a kernel without it, so that the C library uses clone


def confine() -> None:
    """Drop the privileges that the container lacks; system calls are refused from here on."""
    prctl = ctypes.CDLL(None).prctl
    capability = 0
    while prctl(CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    for limit, value in LIMITS.items():
        resource.setrlimit(limit, (value, value))
    rules = pyseccomp.SyscallFilter(defaction=pyseccomp.ALLOW)
    for name in REFUSED.split():
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    for name in HIDDEN:
        rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), name)
    rules.load()
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)  # with it, all capabilities go


if __name__ == "__main__":
    confine()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the command as it is
