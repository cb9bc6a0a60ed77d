# SPDX-License-Identifier: Apache-2.0
"""Augeas' own reading of shell variable files, the second opinion on how /etc/default/grub is edited.

Speaks to libaugeas by cffi, so that no Python package of it is needed (Debian: libaugeas0 augeas-lenses).
"""

from __future__ import annotations

import functools
from typing import Any

import cffi

DECLARATIONS = """
struct augeas;
struct augeas *aug_init(const char *root, const char *loadpath, unsigned int flags);
int aug_set(struct augeas *aug, const char *path, const char *value);
int aug_get(struct augeas *aug, const char *path, const char **value);
int aug_rm(struct augeas *aug, const char *path);
int aug_match(struct augeas *aug, const char *path, char ***matches);
int aug_text_store(struct augeas *aug, const char *lens, const char *node, const char *path);
void free(void *pointer);
"""
NO_LOAD, NO_MODULE_AUTOLOAD = 1 << 5, 1 << 6  # no file is read, a lens only when it is named


@functools.cache
def _library() -> tuple[cffi.FFI, Any, Any]:
    ffi = cffi.FFI()
    ffi.cdef(DECLARATIONS)
    library = ffi.dlopen("libaugeas.so.0")
    handle = library.aug_init(b"/nonexistent", ffi.NULL, NO_LOAD | NO_MODULE_AUTOLOAD)
    return ffi, library, handle


def is_there() -> bool:
    """Return whether the library and its lenses are installed."""
    try:
        return read("A=1\n") == [("A", "1")]
    except OSError:
        return False


def read(text: str) -> list[tuple[str, str]] | None:
    """Return a file's nodes in order, each name with its value as written; None: the lens can't read it."""
    ffi, library, handle = _library()
    library.aug_rm(handle, b"/out")
    library.aug_set(handle, b"/in", text.encode())
    if library.aug_text_store(handle, b"Shellvars.lns", b"/in", b"/out") < 0:
        return None
    paths = ffi.new("char ***")
    count = library.aug_match(handle, b"/out/*", paths)
    nodes = []
    for number in range(max(count, 0)):
        path = ffi.string(paths[0][number])
        value = ffi.new("const char **")
        library.aug_get(handle, path, value)
        name = path.decode().removeprefix("/out/").partition("[")[0]
        nodes.append((name, ffi.string(value[0]).decode() if value[0] else ""))
        library.free(paths[0][number])
    return nodes
