"""Denial of all file access by path: a Landlock ruleset that handles every right and grants none.

Linux 5.13 or newer (``Documentation/userspace-api/landlock.rst``); the rights grow with the ABI version.
"""

import ctypes
import os
import struct
import sys
from typing import Final

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_VERSION_FLAG: Final = 1

_FILE_RIGHTS: Final = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""ABI version -> number of file rights it knows (execute to make_sym, refer, truncate, ioctl_dev)."""
_NETWORK_ABI, _SCOPE_ABI = 4, 6
_NETWORK_RIGHTS: Final = 0b11
"""bind_tcp and connect_tcp."""
_SCOPES: Final = 0b11
"""Abstract Unix sockets and signals to processes outside."""


def install(*, files_only: bool = False) -> str | None:  # pragma: no cover - its process can write no file
    """Apply the ruleset to this process permanently; return the reason if that fails.

    Needs no_new_privs.

    Args:
        files_only: restrict files only, not the network, sockets and signals.
    """
    if sys.platform != "linux":
        return f"no Landlock on {sys.platform}"
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if version < 1:
        return f"no Landlock in this kernel ({os.strerror(ctypes.get_errno())})"
    rules = ruleset(min(version, _NETWORK_ABI - 1) if files_only else version)
    descriptor = libc.syscall(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    if descriptor < 0 or libc.syscall(_RESTRICT_SELF, descriptor, 0) != 0:
        return os.strerror(ctypes.get_errno())
    os.close(descriptor)
    return None


def ruleset(version: int) -> bytes:
    """Return the kernel's ``struct landlock_ruleset_attr`` for its ABI version, 1 or higher."""
    files = (1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1
    words = [files]
    if version >= _NETWORK_ABI:
        words.append(_NETWORK_RIGHTS)
    if version >= _SCOPE_ABI:
        words.append(_SCOPES)
    return struct.pack(f"={len(words)}Q", *words)
