"""A system-call filter for model-written code: no new processes, no sockets, no kernel doors.

The filter is the second wall, behind namespaces or Landlock. It lets threads be (they share the
memory limit) and denies processes, so that a fork bomb cannot start and the memory limit of one
process is that of the whole sandbox.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR, _ARCH, _ARGS = 0, 4, 16
_CLONE_THREAD = 0x00010000
_F_SETOWN, _F_SETOWN_EX = 8, 15
_X32 = 0x40000000

# Numbers from 424 on are the same everywhere: pidfd_send_signal, io_uring (3), open_tree,
# move_mount, fsopen, fsconfig, fsmount, fspick, pidfd_open, pidfd_getfd, mount_setattr,
# memfd_secret.
_MODERN = (424, 425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 442, 447)
_CLONE3 = 435


@dataclass(frozen=True, slots=True)
class _Arch:
    """System-call numbers of one machine."""

    audit: int
    clone: int
    prlimit: int
    fcntl: int
    denied: tuple[int, ...]
    signals: tuple[int, ...]
    """kill, tkill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo."""


# fork, vfork, ptrace, process_vm_*, kcmp, unshare, setns, mount, umount2, pivot_root, chroot,
# keys, bpf, perf, userfaultfd, modules, kexec, reboot, swap, socket, System V shared memory and
# queues, mq_open, memfd_create (memory that no limit counts), file handles.
_X86 = _Arch(
    audit=0xC000003E, clone=56, prlimit=302, fcntl=72,
    denied=(57, 58, 101, 310, 311, 312, 272, 308, 165, 166, 155, 161, 248, 249, 250, 321, 298,
            323, 175, 313, 176, 246, 320, 169, 167, 168, 41, 29, 30, 68, 64, 240, 319, 303, 304),
    signals=(62, 200, 234, 129, 297),
)  # fmt: skip
_ARM = _Arch(
    audit=0xC00000B7, clone=220, prlimit=261, fcntl=25,
    denied=(117, 270, 271, 272, 97, 268, 40, 39, 41, 51, 217, 218, 219, 280, 241, 282, 105, 273,
            106, 104, 294, 142, 224, 225, 198, 194, 196, 186, 190, 180, 279, 264, 265),
    signals=(129, 130, 131, 138, 240),
)  # fmt: skip
_KNOWN = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}


def filter_program(*, alone: bool = False) -> bytes | None:
    """Return the filter as BPF instructions of 8 bytes; None for a machine we have no table of.

    `alone`: there is no process namespace around it, so signals to anyone are denied too.
    """
    arch = _KNOWN.get(platform.machine().lower())
    if arch is None:
        return None
    denied = (*arch.denied, *_MODERN, *(arch.signals if alone else ()))
    refuse = _ERRNO | errno.EPERM
    out = [
        (_LD, 0, 0, _ARCH), (_JEQ, 1, 0, arch.audit), (_RET, 0, 0, _KILL),
        (_LD, 0, 0, _NR), (_JGE, 0, 1, _X32), (_RET, 0, 0, refuse),
    ]  # fmt: skip
    for number in denied:
        out += [(_JEQ, 0, 1, number), (_RET, 0, 0, refuse)]
    # The C library falls back to clone, whose flags a filter can read.
    out += [(_JEQ, 0, 1, _CLONE3), (_RET, 0, 0, _ERRNO | errno.ENOSYS)]
    out += _if_call(arch.clone, 0, [(_JSET, 1, 0, _CLONE_THREAD)], refuse)
    out += _if_call(arch.prlimit, 0, [(_JEQ, 1, 0, 0)], refuse)
    out += [
        (_JEQ, 0, 5, arch.fcntl), (_LD, 0, 0, _ARGS + 8), (_JEQ, 1, 0, _F_SETOWN),
        (_JEQ, 0, 1, _F_SETOWN_EX), (_RET, 0, 0, refuse), (_RET, 0, 0, _ALLOW),
    ]  # fmt: skip
    out.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *item) for item in out)


def _if_call(
    number: int, argument: int, test: list[tuple[int, int, int, int]], refuse: int
) -> list[tuple[int, int, int, int]]:
    """One system call that is allowed only where its argument passes the test."""
    return [
        (_JEQ, 0, 4, number), (_LD, 0, 0, _ARGS + 8 * argument), *test,
        (_RET, 0, 0, refuse), (_RET, 0, 0, _ALLOW),
    ]  # fmt: skip
