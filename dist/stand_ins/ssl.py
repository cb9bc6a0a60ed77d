# SPDX-License-Identifier: Apache-2.0
"""Stands in for TLS, which harpctl needs not: what libraries look up when they are imported, and no more."""


class SSLError(OSError):
    """Never raised."""


SSLSyscallError = SSLWantReadError = SSLWantWriteError = SSLError


class SSLContext:
    """Never made."""


class SSLSocket:
    """Never made."""
