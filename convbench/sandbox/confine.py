"""Confine the sandboxed process from within, irreversibly, before any code of an answer runs.

The text of this file is sent to the process, so it uses the standard library only. With namespaces
it caps the number of files in the scratch folder, each of which costs kernel memory beyond its
size, then gives up the right to change that. Without namespaces it uses Landlock: the process reads
only the interpreter's own files, writes nothing, opens no socket, starts no process and signals
none; the existence, sizes and dates of the host's files stay visible. In both cases the
system-call filter is installed last.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs more than running a test
    from typing import Any

CREATE, ADD, RESTRICT = 444, 445, 446
EXECUTE, READ_FILE, READ_DIR = 1, 1 << 2, 1 << 3
RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Kinds of file access that each version of Landlock knows."""
NO_NEW_PRIVILEGES, SECCOMP, FILTER, KEEP_CAPABILITIES, DEATH_SIGNAL = 38, 22, 2, 8, 1
READ_ANY = 1 << 2
"""CAP_DAC_READ_SEARCH: root's interpreter may lie where only root can look; Landlock limits what is
read."""
CAPABILITIES = 0x20080522
SIGKILL = 9
SCOPES = 3
"""Landlock's scopes: abstract sockets and signals."""
NO_SETUID, NO_DEVICES, REMOUNT = 2, 4, 32


def version() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    number = ctypes.CDLL(None, use_errno=True).syscall(CREATE, None, ctypes.c_size_t(0), 1)
    return max(0, int(number))


def confine(settings: dict[str, Any]) -> None:
    """Confine this process, irreversibly. Raise OSError if the kernel refuses.

    Settings: `scratch`, the scratch folder with namespaces, None without; `files`, the most files
    in it; `read` and `list`, the readable and listable paths without namespaces; `user`, the user
    number to take instead of root's, or None; `filter`, the system-call filter as bytes, or None.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    rules = None
    if settings["scratch"]:
        _cap_files(libc, settings["scratch"], settings["files"])
    else:
        rules = _landlock_rules(libc, settings)
    _drop_privileges(
        libc, settings["user"], READ_ANY if rules and settings["user"] is not None else 0
    )
    libc.prctl(DEATH_SIGNAL, SIGKILL, 0, 0, 0)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if rules is not None:
        _system_call(libc, RESTRICT, rules, 0)
        os.close(rules)
    if settings["filter"] is not None:
        _install_filter(libc, settings["filter"])


def _cap_files(libc: Any, scratch: str, files: int) -> None:
    """Limit the in-memory file system to this many files, folders and links. Raises OSError."""
    flags, options = REMOUNT | NO_SETUID | NO_DEVICES, f"nr_inodes={files}".encode()
    if libc.mount(None, scratch.encode(), None, ctypes.c_ulong(flags), options):
        raise OSError(ctypes.get_errno(), "remount")


def _landlock_rules(libc: Any, settings: dict[str, Any]) -> int:
    """Return the descriptor of Landlock's rule set, not yet in force. Raises OSError."""
    known = version()
    if known < 1:
        raise OSError("no Landlock")
    handled = (1 << RIGHTS.get(known, 16)) - 1
    attributes = struct.pack("=Q", handled)
    if known >= 4:
        attributes += struct.pack("=Q", 3)  # bind and connect
    if known >= 6:
        attributes += struct.pack("=Q", SCOPES)
    rules = _system_call(libc, CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    for path in settings["read"]:
        _allow_path(libc, rules, path, READ_FILE | READ_DIR | EXECUTE)
    for path in settings["list"]:
        _allow_path(libc, rules, path, READ_DIR)
    return rules


def _drop_privileges(libc: Any, user: int | None, capabilities: int) -> None:
    """Give up root and every capability but the given ones. Raises OSError."""
    if user is not None:
        libc.prctl(KEEP_CAPABILITIES, 1 if capabilities else 0, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header, sets = (
        struct.pack("=Ii", CAPABILITIES, 0),
        struct.pack("=6I", capabilities, capabilities, 0, 0, 0, 0),
    )
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


def _allow_path(libc: Any, rules: int, path: str, rights: int) -> None:
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        rights &= READ_FILE | EXECUTE
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    _system_call(libc, ADD, rules, 1, struct.pack("=Qi", rights, descriptor), 0)
    os.close(descriptor)


def _install_filter(libc: Any, program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    bpf_program = Program(len(program) // 8, ctypes.addressof(code))
    if libc.prctl(SECCOMP, FILTER, ctypes.byref(bpf_program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def _system_call(libc: Any, number: int, *arguments: Any) -> int:
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number}")
    return result
