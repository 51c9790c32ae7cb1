"""A scorer module whose "answers" are hostile actions, carried out inside the jailed child.

Each action returns True if it succeeded, so a reward of 1.0 means that the sandbox failed. The C library's
functions are loaded with the module, before the process is restricted: they represent code that escaped from
Python.
"""

import ctypes
import mmap
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sapo_protocol.suite import Family
from sapo_verification.jail.messages import Checked, Failure, encode_reply, frame

libc = ctypes.CDLL(None)
_open, _creat, _unlink, _socket, _connect = libc.open, libc.creat, libc.unlink, libc.socket, libc.connect
_fork, _vfork, _execv, _kill, _ptrace, _write = (
    libc.fork,
    libc.vfork,
    libc.execv,
    libc.kill,
    libc.ptrace,
    libc.write,
)
_mprotect, _mmap, _prctl, _setrlimit, _syscall = (
    libc.mprotect,
    libc.mmap,
    libc.prctl,
    libc.setrlimit,
    libc.syscall,
)
_mmap.restype = ctypes.c_void_p
_abort, _strlen = libc.abort, libc.strlen
_ARGUMENTS = (ctypes.c_char_p * 2)(b"/bin/true", None)
_LIMIT = (ctypes.c_ulong * 2)(1 << 40, 1 << 40)
_RLIMIT_AS = 9
_OPENAT2, _IO_URING_SETUP, _MEMFD_CREATE, _PIDFD_OPEN = 437, 425, 319, 434


def create_file(path: str) -> bool:
    return bool(_creat(path.encode(), 0o644) >= 0)


def create_file_in_python(path: str) -> bool:
    with Path(path).open("w") as file:
        return file.write("owned") > 0


def read_file(path: str) -> bool:
    return bool(_open(path.encode(), os.O_RDONLY) >= 0)


def read_file_in_python(path: str) -> bool:
    with Path(path).open("rb") as file:
        return bool(file.read())


def read_file_by_another_call(path: str) -> bool:
    how = (ctypes.c_uint64 * 3)(0, 0, 0)
    return bool(_syscall(_OPENAT2, -100, path.encode(), how, 24) >= 0)


def delete_file(path: str) -> bool:
    return bool(_unlink(path.encode()) == 0)


def open_socket(_: str) -> bool:
    return bool(_socket(socket.AF_INET, socket.SOCK_STREAM, 0) >= 0)


def open_unix_socket(_: str) -> bool:
    return bool(_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0) >= 0)


def open_socket_in_python(_: str) -> bool:
    return socket.socket().fileno() >= 0


def fork(_: str) -> bool:
    return bool(_fork() >= 0)


def fork_in_python(_: str) -> bool:
    return os.fork() >= 0


def run_program(_: str) -> bool:
    _execv(b"/bin/true", _ARGUMENTS)
    return False


def run_shell_in_python(path: str) -> bool:
    return os.system(f"touch {path}") == 0


def signal_parent(_: str) -> bool:
    return bool(_kill(os.getppid(), 0) == 0)


def trace_itself(_: str) -> bool:
    return bool(_ptrace(0, 0, 0, 0) == 0)


def ring(_: str) -> bool:
    return bool(_syscall(_IO_URING_SETUP, 1, (ctypes.c_char * 120)()) >= 0)


def hidden_file(_: str) -> bool:
    return bool(_syscall(_MEMFD_CREATE, b"x", 0) >= 0)


def handle_of_parent(_: str) -> bool:
    return bool(_syscall(_PIDFD_OPEN, os.getppid(), 0) >= 0)


def executable_memory(_: str) -> bool:
    place = _mmap(None, 4096, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE | mmap.MAP_ANON, -1, 0)
    return place not in (None, ctypes.c_void_p(-1).value)


def write_to_other_descriptors(_: str) -> bool:
    return any(_write(descriptor, b"x", 1) == 1 for descriptor in range(5, 1024))


def raise_limit(_: str) -> bool:
    return bool(_setrlimit(_RLIMIT_AS, _LIMIT) == 0)


def allocate(_: str) -> bool:
    return len(bytearray(4 << 30)) > 0


def import_a_module(_: str) -> bool:
    import xml.dom.minidom

    return xml is not None


def spin(_: str) -> bool:
    while True:
        pass


def block(_: str) -> bool:
    """Wait for a request that never comes: no processor time, and no end."""
    return len(os.read(3, 1)) > 0


def dawdle(seconds: str) -> bool:
    """Wait without processor time, as the child of a busy node does; then answer."""
    lock = threading.Lock()
    lock.acquire()
    return not lock.acquire(timeout=float(seconds))


def exit_in_python(_: str) -> bool:
    sys.exit(0)


def exit_at_once(_: str) -> bool:
    os._exit(0)


def abort(_: str) -> bool:
    _abort()
    return False


def wild_pointer(_: str) -> bool:
    return bool(_strlen(ctypes.c_void_p(1)))


def recurse(answer: str) -> bool:
    return recurse(answer)


def announce_too_much(_: str) -> bool:
    os.write(4, b"\xff\xff\xff\xff")
    return False


def speak_nonsense(_: str) -> bool:
    return reply(b"[" * 5000)


def pay_itself_more(_: str) -> bool:
    return reply(b'{"prompt":"x","rewards":[7]}')


def pay_more_completions(_: str) -> bool:
    return reply(encode_reply(Checked("x", (1.0, 1.0))))


def blame_the_node(_: str) -> bool:
    return reply(encode_reply(Failure.NODE_BUSY))


def guess_the_token(_: str) -> bool:
    os.write(4, frame(b"guessing" + encode_reply(Checked("x", (1.0,)))))
    return False


def prepare_the_next_reply(_: str) -> bool:
    """Send this call's reply early, so that the child's own reply is left for the next call."""
    reply(encode_reply(Checked("x", (0.0,))))
    return True


def stop_reading(_: str) -> bool:
    """Close the pipe of requests, send this call's reply, and stay."""
    os.close(3)
    reply(encode_reply(Checked("x", (0.0,))))
    return spin("")


def reply(body: bytes) -> bool:
    """Reply in place of the child, with this request's token, which code in the child can find."""
    token = next(
        place.f_locals["token"] for place, _ in traceback.walk_stack(None) if "token" in place.f_locals
    )
    os.write(4, frame(token + body))
    return False


ACTS: dict[str, Callable[[str], bool]] = {
    act.__name__: act
    for act in (
        *(create_file, create_file_in_python, read_file, read_file_in_python, read_file_by_another_call),
        *(delete_file, open_socket, open_unix_socket, open_socket_in_python, fork, fork_in_python),
        *(run_program, run_shell_in_python, signal_parent, trace_itself, ring, hidden_file),
        *(handle_of_parent, executable_memory, write_to_other_descriptors, raise_limit, allocate),
        *(import_a_module, spin, exit_in_python, exit_at_once, abort, wild_pointer, recurse),
        *(announce_too_much, speak_nonsense, pay_itself_more, pay_more_completions, guess_the_token),
        *(prepare_the_next_reply, stop_reading, block, dawdle, blame_the_node),
    )
}


def commit(answer: str, entry: Mapping[str, Any], family: Family) -> bool:
    """Carry out the action that an answer names; a refused one is a wrong answer."""
    name, _, argument = answer.partition(":")
    if name == "honest":
        return True
    try:
        return ACTS[name](argument)
    except (OSError, MemoryError):
        return False


SCORERS = {"hostile/1": commit}
