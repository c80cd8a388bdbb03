"""Build a system-call filter for model-written code: it allows what Python needs to compute.

The filter is a second layer behind namespaces or Landlock. A call that is not listed is refused,
including those that a later kernel adds. Threads are allowed (they share the memory limit),
processes are not: a fork bomb cannot start, and the memory limit of one process is that of the
sandbox.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass
from functools import cache

Instruction = tuple[int, int, int, int]

_LD, _AND, _JEQ, _JGE, _JSET, _RET = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NR, _ARCH, _ARGS = 0, 4, 16
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
_MODERN = 424
"""From this number on calls have the same number on all machines, and the C library can do without
them."""
_STREAM, _KINDS = 1, 0xF
_WRITES = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000
"""Flags of `open`: write only, read and write, create, truncate, unnamed file."""
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""Terminal attributes, window size, readable bytes, non-blocking, inherited or not."""
_FCNTLS = (1030, 1032)
"""Commands besides 0 to 4 (copies, flags): a copy that is not inherited, a pipe's size."""

_ANYWHERE = """
read 0 63, write 1 64, open 2 -, close 3 57, stat 4 -, fstat 5 80, lstat 6 -, poll 7 -, lseek 8 62,
mmap 9 222, mprotect 10 226, munmap 11 215, brk 12 214, rt_sigaction 13 134, rt_sigprocmask 14 135,
rt_sigreturn 15 139, ioctl 16 29, pread64 17 67, pwrite64 18 68, readv 19 65, writev 20 66,
access 21 -, pipe 22 -, select 23 -, sched_yield 24 124, mremap 25 216, msync 26 227,
mincore 27 232, madvise 28 233, dup 32 23, dup2 33 -, pause 34 -, nanosleep 35 101,
getitimer 36 102, alarm 37 -, setitimer 38 103, getpid 39 172, sendfile 40 71, sendto 44 206,
recvfrom 45 207, shutdown 48 210, getsockname 51 204, getpeername 52 205, socketpair 53 199,
setsockopt 54 208, getsockopt 55 209, clone 56 220, exit 60 93, wait4 61 260, uname 63 160,
fcntl 72 25, getdents 78 -, getcwd 79 17, chdir 80 49, fchdir 81 50, readlink 89 -, umask 95 166,
gettimeofday 96 169, getrlimit 97 163, getrusage 98 165, sysinfo 99 179, times 100 153,
getuid 102 174, getgid 104 176, geteuid 107 175, getegid 108 177, getppid 110 173, getpgrp 111 -,
getgroups 115 158, getresuid 118 148, getresgid 120 150, getpgid 121 155, getsid 124 156,
rt_sigpending 127 136, rt_sigtimedwait 128 137, rt_sigsuspend 130 133, sigaltstack 131 132,
statfs 137 43, fstatfs 138 44, sched_getparam 143 121,
sched_getscheduler 145 120, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
arch_prctl 158 -, setrlimit 160 164, gettid 186 178, time 201 -, futex 202 98,
sched_getaffinity 204 123, epoll_create 213 -, getdents64 217 61, set_tid_address 218 96,
restart_syscall 219 128, fadvise64 221 223, timer_create 222 107, timer_settime 223 110,
timer_gettime 224 108, timer_getoverrun 225 109, timer_delete 226 111, clock_gettime 228 113,
clock_getres 229 114, clock_nanosleep 230 115, exit_group 231 94, epoll_wait 232 -,
epoll_ctl 233 21, openat 257 56, newfstatat 262 79, readlinkat 267 78, faccessat 269 48,
pselect6 270 72, ppoll 271 73, set_robust_list 273 99, epoll_pwait 281 22, eventfd 284 -,
timerfd_create 283 85, timerfd_settime 286 86, timerfd_gettime 287 87, eventfd2 290 19,
epoll_create1 291 20, dup3 292 24, pipe2 293 59, preadv 295 69, pwritev 296 70, prlimit64 302 261,
getcpu 309 168, getrandom 318 278, membarrier 324 283, copy_file_range 326 285, statx 332 291,
rseq 334 293, close_range 436 436, faccessat2 439 439, epoll_pwait2 441 441
"""
_IN_NAMESPACES = """
kill 62 129, flock 73 32, fsync 74 82, fdatasync 75 83, truncate 76 45,
ftruncate 77 46, rename 82 -, mkdir 83 -, rmdir 84 -, creat 85 -, link 86 -, unlink 87 -,
symlink 88 -, chmod 90 -, fchmod 91 52,
utime 132 -, tkill 200 130, tgkill 234 131, utimes 235 -, mkdirat 258 34, futimesat 261 -,
unlinkat 263 35, renameat 264 38, linkat 265 37, symlinkat 266 36, fchmodat 268 53,
utimensat 280 88, fallocate 285 47, renameat2 316 276
"""
"""Calls that are safe with namespaces: only files of the scratch folder can be changed, and only
the process inside can be signalled."""


@dataclass(frozen=True, slots=True)
class _Machine:
    audit: int
    column: int
    """Its column in the tables above."""


_X86, _ARM = _Machine(0xC000003E, 1), _Machine(0xC00000B7, 2)
_MACHINES = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}


def call_numbers(table: str, column: int) -> dict[str, int]:
    """Return {name: number} of the system calls in a table that the machine of this column has.

    An entry is `NAME X86 ARM`, so the column is 1 or 2; `-` stands for none.
    """
    rows = (entry.split() for entry in table.replace("\n", " ").split(","))
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


@cache
def filter_program(*, alone: bool = False) -> bytes | None:
    """Return the filter as BPF instructions of 8 bytes; None for a machine without a table.

    With `alone` there are no namespaces around the process: it may open files for reading only,
    change none by name, start no other program and signal no process.
    """
    machine = _MACHINES.get(platform.machine().lower())
    if machine is None:
        return None
    known = call_numbers(_ANYWHERE + ("" if alone else f", {_IN_NAMESPACES}"), machine.column)
    refuse = _ERRNO | errno.EPERM
    out: list[Instruction] = [
        (_LD, 0, 0, _ARCH),
        (_JEQ, 1, 0, machine.audit),
        (_RET, 0, 0, _KILL),
        (_LD, 0, 0, _NR),
        (_JGE, 0, 1, _X32),
        (_RET, 0, 0, refuse),
    ]
    for name, (argument, tests) in _call_conditions(alone).items():
        if name in known:
            out += _only_if(known.pop(name), argument, tests)
    for number in known.values():
        out += [(_JEQ, 0, 1, number), (_RET, 0, 0, _ALLOW)]
    out += [(_JGE, 0, 1, _MODERN), (_RET, 0, 0, _ERRNO | errno.ENOSYS), (_RET, 0, 0, refuse)]
    return b"".join(struct.pack("=HBBI", *item) for item in out)


def _call_conditions(alone: bool) -> dict[str, tuple[int, list[Instruction]]]:
    """Return name → (argument number, tests) of the calls allowed for certain arguments only.

    Each test jumps over the next instruction, which allows the call, unless the argument passes.
    """
    allow = (_RET, 0, 0, _ALLOW)
    conditions: dict[str, tuple[int, list[Instruction]]] = {
        # A process is refused, a thread is not. The C library falls back to it from clone3.
        "clone": (0, [(_JSET, 0, 1, _CLONE_THREAD), allow]),
        "prlimit64": (0, [(_JEQ, 0, 1, 0), allow]),  # for the process itself
        # A pair of datagram sockets would send to any socket file of the host.
        "socketpair": (1, [(_AND, 0, 0, _KINDS), (_JEQ, 0, 1, _STREAM), allow]),
        # No owner, which would get signals on input; no locks, which the kernel does not bound.
        "fcntl": (1, [(_JGE, 1, 0, 5), allow, *_allow_values(_FCNTLS)]),
        "ioctl": (1, _allow_values(_IOCTLS)),
    }
    if alone:
        conditions |= {
            name: (at, [(_JSET, 1, 0, _WRITES), allow]) for name, at in (("open", 1), ("openat", 2))
        }
    return conditions


def _allow_values(values: tuple[int, ...]) -> list[Instruction]:
    return [item for value in values for item in ((_JEQ, 0, 1, value), (_RET, 0, 0, _ALLOW))]


def _only_if(number: int, argument: int, tests: list[Instruction]) -> list[Instruction]:
    """Return the instructions that allow a system call only if a test of its argument passes."""
    body = [(_LD, 0, 0, _ARGS + 8 * argument), *tests, (_RET, 0, 0, _ERRNO | errno.EPERM)]
    return [(_JEQ, 0, len(body), number), *body]
