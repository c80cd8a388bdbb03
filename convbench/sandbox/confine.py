"""Landlock from within: run inside the sandboxed process, where namespaces are not allowed.

The text of this file is handed to the process, so it stands alone: standard library only.
After `confine` the process reads nothing but the interpreter's own files, writes nothing at all,
opens no socket, starts no process and signals nobody. It cannot be undone. What Landlock does not
hide is that the host's files exist, their sizes and dates.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Any

CREATE, ADD, RESTRICT = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR = 1, 1 << 2, 1 << 3
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Kinds of file access that each version of Landlock knows."""
NO_NEW_PRIVILEGES, SECCOMP, FILTER, KEEP_CAPABILITIES, DEATH_SIGNAL = 38, 22, 2, 8, 1
READ_ANY = 1 << 2
"""CAP_DAC_READ_SEARCH: root's interpreter may lie where only root can look; Landlock says what of
it is read."""
CAPABILITIES = 0x20080522
SIGKILL = 9
SCOPES = 3
"""Abstract sockets and signals."""


def version() -> int:
    """Return the kernel's version of Landlock; 0 where it has none."""
    found = ctypes.CDLL(None, use_errno=True).syscall(CREATE, None, ctypes.c_size_t(0), 1)
    return max(0, int(found))


def confine(settings: dict[str, Any]) -> None:
    """Shut the doors. `read`: files and folders to read; `list`: folders to list; `user`: number
    to take instead of root's; `filter`: the system-call filter. Raises OSError where the kernel
    refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    known = version()
    if known < 1:
        raise OSError("no Landlock")
    handled = (1 << RIGHTS.get(known, 16)) - 1
    attributes = struct.pack("=Q", handled)
    if known >= 4:
        attributes += struct.pack("=Q", 3)  # bind and connect
    if known >= 6:
        attributes += struct.pack("=Q", SCOPES)
    rules = _call(libc, CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    for path in settings["read"]:
        _allow(libc, rules, path, READ_FILE | READ_DIR | EXECUTE)
    for path in settings["list"]:
        _allow(libc, rules, path, READ_DIR)
    _drop(libc, settings["user"])
    libc.prctl(DEATH_SIGNAL, SIGKILL, 0, 0, 0)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    _call(libc, RESTRICT, rules, 0)
    os.close(rules)
    _filter(libc, settings["filter"])


def _drop(libc: Any, user: int | None) -> None:
    """Give up root and every privilege but that of reading, which only a new user needs."""
    if user is not None:
        libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kept = READ_ANY if user is not None else 0
    header, sets = struct.pack("=Ii", CAPABILITIES, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0)
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def _allow(libc: Any, rules: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        rights &= READ_FILE | EXECUTE
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    _call(libc, ADD, rules, 1, struct.pack("=Qi", rights, place), 0)
    os.close(place)


def _filter(libc: Any, program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    whole = Program(len(program) // 8, ctypes.addressof(code))
    if libc.prctl(SECCOMP, FILTER, ctypes.byref(whole), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def _call(libc: Any, number: int, *arguments: Any) -> int:
    found = int(libc.syscall(number, *arguments))
    if found < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return found
