# SPDX-License-Identifier: Apache-2.0
"""NCCL's interface as Python declares it to cffi: written apart from the plugin's own header, so that the two
check each other.

A version is its oldest members plus what each later version changed; `declaration` returns the C text.
"""

from __future__ import annotations

VERSIONS = tuple(range(4, 13))
CONTEXT_VERSION = 11  # from here on init returns a context, and there is finalize

SUCCESS, SYSTEM, INTERNAL, ARGUMENT, USAGE, REMOTE = 0, 2, 3, 4, 5, 6
PTR_HOST, PTR_CUDA = 1, 2
LEVEL_WARN, LEVEL_INFO, LEVEL_TRACE = 2, 3, 5
UNDEFINED = -1

HANDLE_BYTES = {4: 64}  # 128 for all newer ones
REQUESTS = 32

TABLE_BYTES = {4: 128, 5: 128, 6: 136, 7: 152, 8: 152, 9: 160, 10: 160, 11: 176, 12: 176}
PROPERTIES_BYTES = {4: 40, 5: 48, 6: 48, 7: 56, 8: 64, 9: 104, 10: 104, 11: 112, 12: 128}


def handle_bytes(version: int) -> int:
    """Return the room that this version's NCCL has for a handle."""
    return HANDLE_BYTES.get(version, 128)


def remote_error(version: int) -> int:
    """Return the code of a dead peer: NCCL knew none of its own before v6."""
    return REMOTE if version >= 6 else SYSTEM


def _properties_struct(version: int) -> str:
    since = [
        (4, "char *name; char *pciPath; uint64_t guid; int ptrSupport;"),
        (8, "int regIsGlobal;"),
        (9, "int forceFlush;"),
        (4, "int speed; int port;"),
        (5, "float latency;"),
        (4, "int maxComms;"),
        (5, "int maxRecvs;"),
        (7, "int netDeviceType; int netDeviceVersion;"),
        (9, f"struct {{ int ndevs; int devs[{8 if version >= 12 else 4}]; }} vProps;"),
        (9, "size_t maxP2pBytes; size_t maxCollBytes;"),
        (11, "int maxMultiRequestSize;"),
        (12, "int16_t railId; int16_t planeId;"),
    ]
    fields = " ".join(text for first, text in since if version >= first)
    return f"struct properties_v{version} {{ {fields} }};"


def _table_members(v: int) -> list[tuple[str, str]]:
    """List the members of a version's table after `name`, each with its parameters."""
    context = "void *ctx, " if v >= CONTEXT_VERSION else ""
    device_handle = ", void **device" if v >= 7 else ""
    size = "size_t" if v >= 9 else "int"
    registered = "size_t" if v >= 8 else "int"
    phandle = ", void *phandle" if v >= 10 else ""
    phandles = ", void **phandles" if v >= 10 else ""
    if v >= CONTEXT_VERSION:
        init = "void **ctx, uint64_t commId, int *config, void *log, void *profiler"
    else:
        init = "void *log" + (", void *profiler" if v == 10 else "")
    config = "int *config, " if v == 10 else ""
    if v == 4:
        send = "void *comm, void *data, int size, void *mhandle, void **request"
        receive = flush = send
    else:
        send = f"void *comm, void *data, {size} size, int tag, void *mhandle{phandle}, void **request"
        receive = (
            f"void *comm, int n, void **data, {size} *sizes, int *tags, void **mhandles{phandles}, void **request"
        )
        flush = "void *comm, int n, void **data, int *sizes, void **mhandles, void **request"
    since = [
        (4, "init", init),
        (4, "devices", "int *ndev"),
        (4, "getProperties", f"int dev, struct properties_v{v} *props"),
        (4, "listen", f"{context}int dev, void *handle, void **listenComm"),
        (4, "connect", f"{context}int dev, {config}void *handle, void **comm{device_handle}"),
        (4, "accept", f"void *listenComm, void **comm{device_handle}"),
        (4, "regMr", f"void *comm, void *data, {registered} size, int type, void **mhandle"),
        (
            6,
            "regMrDmaBuf",
            "void *comm, void *data, size_t size, int type, uint64_t offset, int fd, void **mhandle",
        ),
        (4, "deregMr", "void *comm, void *mhandle"),
        (4, "isend", send),
        (4, "irecv", receive),
        (4, "iflush", flush),
        (4, "test", "void *request, int *done, int *sizes"),
        (4, "closeSend", "void *comm"),
        (4, "closeRecv", "void *comm"),
        (4, "closeListen", "void *comm"),
        (7, "getDeviceMr", "void *comm, void *mhandle, void **device_mhandle"),
        (7, "irecvConsumed", "void *comm, int n, void *request"),
        (9, "makeVDevice", "int *dev, void *props"),
        (11, "finalize", "void *ctx"),
        (11, "setNetAttr", "void *ctx, void *attr"),
    ]
    return [(name, parameters) for first, name, parameters in since if v >= first]


def declare_version(version: int) -> str:
    """Return the C declarations of one version: properties, table, exported object."""
    members = " ".join(f"int (*{name})({parameters});" for name, parameters in _table_members(version))
    return (
        f"{_properties_struct(version)}\n"
        f"struct net_v{version} {{ const char *name; {members} }};\n"
        f"extern struct net_v{version} ncclNetPlugin_v{version};\n"
    )


LIBC = """
void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset);
int munmap(void *addr, size_t length);
void *memset(void *s, int c, size_t n);
"""
