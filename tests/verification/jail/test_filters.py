"""The kernel filters as data: every decision of the system call filter, on each of its architectures."""

import errno
import struct
from typing import Final

import pytest

from sapo_verification.jail.landlock import ruleset
from sapo_verification.jail.seccomp import MACHINES, filter_program

KILL, DENY, ALLOW = "kill the process", "EPERM", "allow"
OUTCOMES = {0x80000000: KILL, 0x00050000 | errno.EPERM: DENY, 0x7FFF0000: ALLOW}

ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""``AUDIT_ARCH_X86_64`` and ``AUDIT_ARCH_AARCH64``: machine, 64 bits, little-endian."""

ALLOWED = """
read 0 63, write 1 64, close 3 57, fstat 5 80, lseek 8 62, munmap 11 215, mremap 25 216, brk 12 214,
madvise 28 233, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, sigaltstack 131 132,
sched_yield 24 124, getpid 39 172, gettid 186 178, futex 202 98, clock_gettime 228 113, getrandom 318 278,
rseq 334 293, restart_syscall 219 128, exit 60 93, exit_group 231 94
"""
MAPS = "mmap 9 222, mprotect 10 226"
DEADLY = """
socket 41 198, connect 42 203, clone 56 220, clone3 435 435, fork 57 -, vfork 58 -, execve 59 221,
execveat 322 281, ptrace 101 117, kill 62 129, tkill 200 130, tgkill 234 131, io_uring_setup 425 425,
bpf 321 280, userfaultfd 323 282, process_vm_readv 310 270, process_vm_writev 311 271, memfd_create 319 279,
unshare 272 97, setns 308 268, mount 165 40, init_module 175 105, keyctl 250 219, perf_event_open 298 241
"""
"""Calls with their numbers on x86-64 and aarch64, from the kernel's tables."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06


def numbers(table: str, machine: str) -> set[int]:
    column = list(ARCHITECTURES).index(machine)
    found = [entry.split()[1 + column] for entry in table.split(",")]
    return {int(number) for number in found if number != "-"}


def outcome(program: bytes, architecture: int, number: int, third_argument: int = 0) -> str:
    """Interpret a filter as the kernel does, for one system call."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, 0, 0, third_argument, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", program))
    accumulator = place = 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        if code == _RETURN:
            return OUTCOMES[value]
        if code == _LOAD:
            (accumulator,) = struct.unpack_from("=I", data, value)
            continue
        jumps = {
            _EQUAL: accumulator == value,
            _AT_LEAST: accumulator >= value,
            _ANY_BIT: bool(accumulator & value),
        }
        place += if_true if jumps[code] else if_false


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_the_filter_allows_memory_and_pipes_and_kills_for_what_no_scorer_calls(machine: str) -> None:
    program, architecture = filter_program(machine), ARCHITECTURES[machine]
    expected = dict.fromkeys(range(512), DENY)
    expected |= dict.fromkeys(numbers(ALLOWED, machine) | numbers(MAPS, machine), ALLOW)
    expected |= dict.fromkeys(numbers(DEADLY, machine), KILL)
    assert {number: outcome(program, architecture, number) for number in expected} == expected


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_memory_cannot_become_executable(machine: str) -> None:
    program, architecture = filter_program(machine), ARCHITECTURES[machine]
    for number in numbers(MAPS, machine):
        outcomes = [outcome(program, architecture, number, protection) for protection in range(8)]
        assert outcomes == [ALLOW] * 4 + [DENY] * 4


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_calls_by_another_abi_kill_the_process(machine: str) -> None:
    program, others = filter_program(machine), set(ARCHITECTURES.values()) - {ARCHITECTURES[machine]}
    i386, x32 = 0x40000003, 0x40000000
    for architecture in (i386, *others):
        assert {outcome(program, architecture, number) for number in range(512)} == {KILL}
    assert {outcome(program, ARCHITECTURES[machine], x32 | number) for number in range(512)} == {KILL}


@pytest.mark.parametrize(
    ("abi", "words"),
    [
        (1, [2**13 - 1]),
        (2, [2**14 - 1]),  # refer
        (3, [2**15 - 1]),  # truncate
        (4, [2**15 - 1, 0b11]),  # bind and connect
        (5, [2**16 - 1, 0b11]),  # ioctl
        (6, [2**16 - 1, 0b11, 0b11]),  # abstract sockets and signals
        (7, [2**16 - 1, 0b11, 0b11]),
    ],
)
def test_every_right_that_a_kernel_knows_is_handled(abi: int, words: list[int]) -> None:
    assert ruleset(abi) == b"".join(word.to_bytes(8, "little") for word in words)
