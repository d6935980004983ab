"""The system calls that a sandboxed process may make, and the filters that hold it to them.

A list of what is allowed: a call that the next kernel brings is refused until somebody has thought about it. What is
refused is answered with ENOSYS, after which programs and C libraries fall back. There is no namespace, mount, tracing,
keyring, BPF, io_uring, perf, memfd or System V memory in it, and no Landlock, whose rules are memory of the kernel that
no limit counts; of sockets there are Unix and internet ones, and the network of a sandbox is its own empty one.
"""

from __future__ import annotations

import errno
import os
import stat
import termios
from functools import cache

from workbench.sandbox.job import SandboxRefused

FILES = """
    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64
    fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock
    fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch lchown lgetxattr link linkat listxattr llistxattr
    lremovexattr lseek lsetxattr lstat mkdir mkdirat newfstatat open openat openat2 pread64 preadv pwrite64 pwritev
    read readahead readlink readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr splice
    stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat utime
    utimensat utimes vmsplice write writev
"""
MEMORY = """
    brk get_mempolicy madvise membarrier mincore mlock mlock2 mmap mprotect mremap msync munlock munmap pkey_alloc
    pkey_free pkey_mprotect
"""
PROCESSES = """
    alarm arch_prctl capget capset execve execveat exit exit_group fork getcpu getegid geteuid getgid getgroups
    getitimer getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit get_robust_list
    getrusage getsid gettid getuid kill pause pidfd_open pidfd_send_signal prctl prlimit64 restart_syscall rseq
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
    rt_tgsigqueueinfo sched_getaffinity sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min
    sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
    sched_yield setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid setresuid
    setreuid setrlimit set_robust_list setsid set_tid_address setuid sigaltstack tgkill times tkill uname vfork
    wait4 waitid
"""
TIME = """
    clock_getres clock_gettime clock_nanosleep gettimeofday nanosleep time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime
"""
WAITING = """
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 futex futex_requeue
    futex_wait futex_waitv futex_wake pipe pipe2 poll ppoll pselect6 select signalfd signalfd4
"""
SOCKETS = """
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg
    sendto setsockopt shutdown socketpair
"""
OTHER = "ioctl sysinfo"
ALLOWED = tuple(" ".join((FILES, MEMORY, PROCESSES, TIME, WAITING, SOCKETS, OTHER)).split())

FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
"""No netlink, packet, vsock or kernel crypto sockets."""
PERSONALITIES = (0x0, 0xFFFFFFFF)
"""Linux as it is, and the question which one it is: nothing that takes randomness out of addresses."""
VECTORS_WITH_FLAGS = ("preadv2", "pwritev2")
"""Calls allowed without flags only: one flag tells what is in the page cache, which all runs share."""
NEW_NAMESPACES = 0x7E020080
"""The flags of clone that make a namespace: NEWTIME to NEWNET. clone3 hides its flags behind a pointer: ENOSYS."""
TERMINAL_INPUT = (termios.TIOCSTI, 0x541C, termios.TIOCSETD)
"""ioctls that type into a terminal (TIOCSTI, TIOCLINUX) or set its line discipline."""
BUFFER_SIZES = (7, 8)
"""SO_SNDBUF and SO_RCVBUF of SOL_SOCKET, wishes that the kernel bounds anyway: they are taken and change nothing, for
what is in a socket is in no process's memory, and may be some megabytes in each where it is asked for."""
SOL_SOCKET = 1
LOW_32_BITS = 0xFFFFFFFF
"""All of an ioctl's number, of an option's or of flags that the kernel looks at."""


@cache
def filters() -> tuple[bytes, ...]:
    """BPF programs, all of which must agree to a call. Raises SandboxRefused where libseccomp can't make them."""
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise SandboxRefused(
            f"the system call filter can't be made ({error}): make setup, or pip install -e '.[scorer]' in the clone, "
            "and libseccomp2 of the system's packages"
        ) from error
    allowed = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    for name in ALLOWED:
        _allow(allowed, name)
    for family in FAMILIES.values():
        _allow(allowed, "socket", pyseccomp.Arg(0, pyseccomp.EQ, family))
    for persona in PERSONALITIES:
        _allow(allowed, "personality", pyseccomp.Arg(0, pyseccomp.EQ, persona))
    for name in VECTORS_WITH_FLAGS:
        _allow(allowed, name, pyseccomp.Arg(5, pyseccomp.MASKED_EQ, LOW_32_BITS, 0))
    _allow(allowed, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, NEW_NAMESPACES, 0))
    for call, mode in (("mknod", 1), ("mknodat", 2)):
        _allow(allowed, call, pyseccomp.Arg(mode, pyseccomp.MASKED_EQ, stat.S_IFMT(LOW_32_BITS), stat.S_IFIFO))
    refined = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for number in TERMINAL_INPUT:
        refined.add_rule(
            pyseccomp.ERRNO(errno.EPERM), "ioctl", pyseccomp.Arg(1, pyseccomp.MASKED_EQ, LOW_32_BITS, number)
        )
    for option in BUFFER_SIZES:
        refined.add_rule(
            pyseccomp.ERRNO(0),
            "setsockopt",
            pyseccomp.Arg(1, pyseccomp.MASKED_EQ, LOW_32_BITS, SOL_SOCKET),
            pyseccomp.Arg(2, pyseccomp.MASKED_EQ, LOW_32_BITS, option),
        )
    return _program(allowed), _program(refined)


def _allow(filter: object, name: str, *arguments: object) -> None:
    """A call that this machine or its libseccomp doesn't know stays refused."""
    import pyseccomp

    try:
        filter.add_rule(pyseccomp.ALLOW, name, *arguments)  # type: ignore[attr-defined]
    except (OSError, ValueError, RuntimeError):
        if name in ("execve", "read", "mmap", "clone", "socket"):
            raise


def _program(filter: object) -> bytes:
    with os.fdopen(os.memfd_create("seccomp"), "w+b") as file:
        filter.export_bpf(file)  # type: ignore[attr-defined]
        file.seek(0)
        return file.read()
