# SPDX-License-Identifier: Apache-2.0
"""Takes a process its privileges: every capability, and socket buffers above a kernel's default limits.

The limits (net.core.rmem_max, wmem_max) belong to the machine, not to a network namespace, and a machine may
have raised them. So they are left alone, and a preloaded library (plugin/lab/default_buffers.c) applies the
defaults to what the process requests. What may pass the limits, SO_RCVBUFFORCE and SO_SNDBUFFORCE, the kernel
itself refuses to a process without CAP_NET_ADMIN.
"""

from __future__ import annotations

from harpctl.build_info import built_file

DEFAULT_BUFFER_BYTES = 212992  # Linux's default on 64-bit machines; default_buffers.c has it, too


def unprivileged_words() -> list[str]:
    """Return the words before a command that take it its privileges."""
    library = built_file("default_buffers.so", "harplab")
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "env", f"LD_PRELOAD={library}"]
