"""The system calls that a jailed child may make: for memory, its two pipes and its exit.

A seccomp filter is a program of classic BPF that the kernel runs before every system call (Linux
``Documentation/userspace-api/seccomp_filter.rst``). Ours allows a short list. A call that no honest scorer
can make ends the process; all others fail with EPERM. Memory can never become executable.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from dataclasses import dataclass
from typing import Final

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PROT_EXEC: Final = 4

_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000

# offsets in struct seccomp_data: number, architecture, and the low half of the third argument
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


@dataclass(frozen=True, slots=True)
class _Calls:
    """System call numbers of one architecture; ``maps`` take protection bits as their third argument."""

    audit_architecture: int
    allowed: tuple[int, ...]
    maps: tuple[int, ...]
    deadly: tuple[int, ...]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split())


# allowed: read write close fstat lseek munmap mremap brk madvise rt_sigaction rt_sigprocmask rt_sigreturn
#   sigaltstack sched_yield getpid gettid futex clock_gettime getrandom rseq restart_syscall exit exit_group
# maps: mmap mprotect
# deadly: socket connect clone clone3 (fork vfork) execve execveat ptrace kill tkill tgkill io_uring_setup bpf
#   userfaultfd process_vm_readv process_vm_writev memfd_create unshare setns mount init_module keyctl
#   perf_event_open
_CALLS: Final = {
    "x86_64": _Calls(
        0xC000003E,
        _numbers("0 1 3 5 8 11 25 12 28 13 14 15 131 24 39 186 202 228 318 334 219 60 231"),
        _numbers("9 10"),
        _numbers("41 42 56 435 57 58 59 322 101 62 200 234 425 321 323 310 311 319 272 308 165 175 250 298"),
    ),
    "aarch64": _Calls(
        0xC00000B7,
        _numbers("63 64 57 80 62 215 216 214 233 134 135 139 132 124 172 178 98 113 278 293 128 93 94"),
        _numbers("222 226"),
        _numbers("198 203 220 435 221 281 117 129 130 131 425 280 282 270 271 279 97 268 40 105 219 241"),
    ),
}
MACHINES: Final = frozenset(_CALLS)
"""Architectures that have a filter, by their names in ``uname``."""

_X32_BIT: Final = 0x40000000
"""On x86-64 these numbers are the same calls by another ABI."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install() -> str | None:  # pragma: no cover - its process can write no file, so no figures either
    """Apply the filter to this process permanently; return the reason if that fails.

    Needs no_new_privs.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in MACHINES:
        return f"no filter for {sys.platform} on {machine}"
    code = filter_program(machine)
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        return os.strerror(ctypes.get_errno())
    return None


def filter_program(machine: str) -> bytes:
    """Return the filter of one of ``MACHINES`` as instructions of classic BPF, eight bytes each."""
    calls = _CALLS[machine]
    steps = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, calls.audit_architecture, 1, 0)]
    steps += [_step(_RETURN, _KILL_PROCESS), _step(_LOAD, _NUMBER)]
    steps += [_step(_AT_LEAST, _X32_BIT, 0, 1), _step(_RETURN, _KILL_PROCESS)]
    for number in calls.allowed:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ALLOW)]
    for number in calls.deadly:
        steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _KILL_PROCESS)]
    for number in calls.maps:
        steps += [_step(_EQUAL, number, 0, 4), _step(_LOAD, _THIRD_ARGUMENT)]
        steps += [
            _step(_ANY_BIT, _PROT_EXEC, 0, 1),
            _step(_RETURN, _ERRNO | errno.EPERM),
            _step(_RETURN, _ALLOW),
        ]
    return b"".join([*steps, _step(_RETURN, _ERRNO | errno.EPERM)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one instruction; the jumps are numbers of instructions to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
