"""Attacks on a sandbox, run by name inside one and, as their positive control, outside: each says if it got through.

The standard library alone, for this file is sent into the sandbox as text. What there is to be reached comes as JSON.
They are run as `python3 -c <this text> NAME JSON`, and print THROUGH or what held them.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import pty
import resource
import socket
import stat
import struct
import sys
import termios
import threading
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
NUMBERS = {
    "add_key": (248, 217), "bpf": (321, 280), "clone": (56, 220), "init_module": (175, 105), "keyctl": (250, 219),
    "memfd_create": (319, 279), "perf_event_open": (298, 241), "personality": (135, 92),
    "process_vm_readv": (310, 270), "reboot": (169, 142), "shmget": (29, 194), "syslog": (103, 116),
    "userfaultfd": (323, 282), "name_to_handle_at": (303, 264), "ptrace": (101, 117), "ioctl": (16, 29),
    "swapon": (167, 224), "io_setup": (206, 0),
    "preadv2": (327, 286),
    # of one number everywhere
    "landlock_create_ruleset": (444, 444),
    "io_uring_setup": (425, 425), "open_tree": (428, 428), "fsopen": (430, 430), "clone3": (435, 435),
    "pidfd_getfd": (438, 438), "mount_setattr": (442, 442), "memfd_secret": (447, 447),
}  # fmt: skip
NEW_USER, NEW_NS, NEW_NET = 0x10000000, 0x00020000, 0x40000000


def call(name, *arguments):
    """Raises OSError as the kernel said."""
    long = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = libc.syscall(ctypes.c_long(NUMBERS[name][0 if X86 else 1]), *long)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def done(result):
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


# What is on the network


def tcp(target):
    with socket.create_connection(("127.0.0.1", target["port"]), timeout=2):
        return True


def tcp_over_ipv6(target):
    with socket.create_connection(("::1", target["port6"]), timeout=2):
        return True


def udp(target):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(2)
        client.sendto(b"echo", ("127.0.0.1", target["udp"]))
        return client.recv(10) == b"echo"


def _has_route(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((address, 80))
        return True


def metadata_service(_):
    return _has_route("169.254.169.254")


def internet(_):
    return _has_route("192.0.2.1")


def unix_socket(target):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(target["unix"])
        return True


def abstract_socket(target):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + target["abstract"])
        return True


def _can_open(*kind):
    with socket.socket(*kind):
        return True


def netlink_socket(_):
    return _can_open(socket.AF_NETLINK, socket.SOCK_RAW, 0)


def packet_socket(_):
    return _can_open(socket.AF_PACKET, socket.SOCK_RAW, 0)


def raw_socket(_):
    return _can_open(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def vsock_socket(_):
    return _can_open(socket.AF_VSOCK, socket.SOCK_STREAM)


def kernel_crypto_socket(_):
    return _can_open(socket.AF_ALG, socket.SOCK_SEQPACKET)


# Files of the host


def read_a_file(target):
    return Path(target["file"]).read_text() == target["secret"]


def read_shadow(_):
    return bool(Path("/etc/shadow").read_text())


def write_beside(target):
    Path(target["file"] + ".written").write_text("x")
    return True


def write_to_usr(_):
    place = Path("/usr/local/lib", f"written-{os.getpid()}")
    place.write_text("x")
    place.unlink()
    return True


def write_to_the_root(_):
    place = Path("/", f"written-{os.getpid()}")
    place.write_text("x")
    place.unlink()
    return True


def write_to_dev(_):
    place = Path("/dev", f"written-{os.getpid()}")
    place.write_text("x")
    place.unlink()
    return True


def _opens_to_write(place):
    os.close(os.open(place, os.O_WRONLY))
    return True


def core_pattern(_):
    return _opens_to_write("/proc/sys/kernel/core_pattern")


def sysrq(_):
    return _opens_to_write("/proc/sysrq-trigger")


def drop_caches(_):
    return _opens_to_write("/proc/sys/vm/drop_caches")


def sysfs(_):
    return _opens_to_write("/sys/kernel/mm/transparent_hugepage/enabled")


def kernel_messages(_):
    os.close(os.open("/dev/kmsg", os.O_RDONLY))
    return True


def disk_device(_):
    disks = [*Path("/dev").glob("vd?"), *Path("/dev").glob("sd?"), *Path("/dev").glob("nvme?n?")]
    os.close(os.open(disks[0], os.O_RDONLY) if disks else -1)
    return True


def descriptors(_):
    return any(os.path.realpath(one) == "/dev/full" for one in Path("/proc/self/fd").iterdir())


def handle_of_a_file(_):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    return call("name_to_handle_at", -100, b"/", handle, ctypes.byref(ctypes.c_int()), 0) == 0


# Neighbours


def secrets_of_processes(target):
    found = False
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            found |= target["secret"].encode() in place.read_bytes()
        except OSError:
            continue
    return found


def _is_the_victim(target):
    fields = Path(f"/proc/{target['victim']}/stat").read_text().rpartition(")")[2].split()
    return fields[19] == target["victim_started"]


def see_a_neighbour(target):
    return _is_the_victim(target)


def signal_a_neighbour(target):
    os.kill(target["victim"], 0)
    return _is_the_victim(target)


def trace_a_neighbour(target):
    call("ptrace", 16, target["victim"], 0, 0)
    return _is_the_victim(target)


def read_a_neighbours_memory(target):
    place = ctypes.create_string_buffer(8)
    local = struct.pack("QQ", ctypes.addressof(place), 8)
    mapped = 0
    for line in Path(f"/proc/{target['victim']}/maps").read_text().splitlines():
        if " r-" in line or " rw" in line:
            mapped = int(line.split("-")[0], 16)
            break
    return call("process_vm_readv", target["victim"], local, 1, struct.pack("QQ", mapped, 8), 1, 0) == 8


def take_a_neighbours_descriptor(target):
    return call("pidfd_getfd", os.pidfd_open(target["victim"]), 0, 0) >= 0


def limit_a_neighbour(target):
    resource.prlimit(target["victim"], resource.RLIMIT_CORE, (0, 0))
    return _is_the_victim(target)


# Privileges


def capabilities(_):
    lines = Path("/proc/self/status").read_text().splitlines()
    return any(line.startswith(("CapEff", "CapPrm", "CapBnd")) and int(line.split()[1], 16) for line in lines)


def become_root(_):
    os.setuid(0)
    return os.getuid() == 0


def setuid_programs(_):
    return libc.prctl(39, 0, 0, 0, 0) == 0


def real_time_priority(_):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return True


def better_priority(_):
    os.nice(-5)
    return True


def hide_from_the_oom_killer(_):
    Path("/proc/self/oom_score_adj").write_text("0")
    return True


def hold_rules_of_landlock(_):
    return call("landlock_create_ruleset", (ctypes.c_uint64 * 1)(1), 8, 0) >= 0


def look_into_the_page_cache(_):
    """At a file that every run shares, without having it read."""
    waits_for_nothing = 8
    held = ctypes.create_string_buffer(1)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(held), 1)
    with Path(sys.executable).open("rb") as shared:
        return call("preadv2", shared.fileno(), vector, 1, 0, 0, waits_for_nothing) == 1


def raise_a_limit(_):
    """Raise a limit where there is room above it: a limit that is not there can't be raised."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    except ValueError as error:
        raise OSError(errno.EPERM, str(error)) from None
    return True


# Namespaces and mounts


def new_user_namespace(_):
    return done(libc.unshare(NEW_USER))


def new_mount_namespace(_):
    return done(libc.unshare(NEW_NS))


def new_network_namespace(_):
    return done(libc.unshare(NEW_NET))


def clone_a_namespace(_):
    pid = call("clone", NEW_USER | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def clone3_a_namespace(_):
    asked = struct.pack("8Q", NEW_USER, 0, 0, 0, 17, 0, 0, 0)
    pid = call("clone3", asked, len(asked))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


def enter_a_namespace(_):
    with Path("/proc/self/ns/net").open() as network:
        return done(libc.setns(network.fileno(), NEW_NET))


def mount(_):
    place = Path(f"/tmp/mounted-{os.getpid()}")
    place.mkdir()
    try:
        done(libc.mount(b"none", bytes(place), b"tmpfs", 0, b""))
        libc.umount2(bytes(place), 2)
    finally:
        place.rmdir()
    return True


def mount_the_new_way(_):
    return call("fsopen", b"tmpfs", 0) >= 0


def clone_a_mount(_):
    return call("open_tree", -100, b"/", 1) >= 0


def change_a_mount(_):
    attributes = struct.pack("4Q", 0, 0, 0, 0)
    return call("mount_setattr", -100, b"/", 0x8000, attributes, len(attributes)) == 0


def chroot(_):
    Path("root-of-nothing").mkdir(exist_ok=True)
    os.chroot("root-of-nothing")
    return True


def host_name(_):
    socket.sethostname(socket.gethostname())
    return True


def device_node(_):
    place = Path(f"/tmp/device-{os.getpid()}")
    os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 1))
    place.unlink()
    return True


# System calls with a history


def keyring(_):
    return call("keyctl", 0, -2, 1) != 0


def add_key(_):
    return call("add_key", b"user", b"name", b"value", 5, -2) > 0


def bpf(_):
    return call("bpf", 0, struct.pack("5I", 2, 4, 4, 1, 0) + bytes(100), 48) >= 0


def perf_events(_):
    attributes = struct.pack("IIQ", 1, 112, 0) + bytes(96)
    return call("perf_event_open", attributes, 0, -1, -1, 0) >= 0


def io_uring(_):
    return call("io_uring_setup", 4, ctypes.create_string_buffer(256)) >= 0


def user_faults(_):
    return call("userfaultfd", 0) >= 0


def anonymous_file(_):
    return call("memfd_create", b"x", 0) >= 0


def shared_memory_segment(_):
    return call("shmget", 0, 4096, 0o1600) >= 0


def no_randomised_addresses(_):
    return call("personality", 0x0040000) >= 0


def kernel_log(_):
    return call("syslog", 10, 0, 0) >= 0


def _is_reached(name, *arguments, refused=(errno.ENOSYS, errno.EPERM)):
    """Called with arguments that nothing comes of."""
    try:
        call(name, *arguments)
    except OSError as error:
        if error.errno in refused:
            raise
    return True


def reboot(_):
    return _is_reached("reboot", 0, 0, 0, 0)


def swap(_):
    return _is_reached("swapon", b"/nowhere", 0)


def _typed(number):
    _, secondary = pty.openpty()
    if (child := os.fork()) == 0:
        os.setsid()
        try:
            fcntl.ioctl(secondary, termios.TIOCSCTTY, 0)
            call("ioctl", ctypes.c_int(secondary), ctypes.c_ulong(number), b"x")
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def type_into_a_terminal(_):
    return _typed(termios.TIOCSTI)


def type_with_high_bits(_):
    return _typed(termios.TIOCSTI | 1 << 32)


def calls_of_32_bits(_):
    """getpid by int 0x80, which a filter of 64-bit numbers alone takes for another call."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    return function() == os.getpid()


# More than there is room for: through where more was had than `most`


def _filled(folder, most):
    place = Path(folder, f"filled-{os.getpid()}")
    try:
        with place.open("wb") as file:
            for _ in range(most + 1):
                file.write(bytes(1 << 20))
                file.flush()
        return True
    finally:
        place.unlink(missing_ok=True)


def fill_tmp(target):
    return _filled("/tmp", target["most_mib"])


def fill_shared_memory(target):
    return _filled("/dev/shm", target["most_mib"])


def fill_the_workspace(target):
    return _filled(".", target["most_mib"])


def fork_bomb(target):
    children = []
    try:
        for _ in range(target["most_processes"] + 1):
            if (child := os.fork()) == 0:
                threading.Event().wait(30)
                os._exit(0)
            children.append(child)
        return True
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)


def thread_bomb(target):
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(target["most_processes"] + 1)]
    try:
        for thread in threads:
            thread.start()
        return True
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from None
    finally:
        end.set()


def _held(take, most_mib):
    kept = [take(8 << 20) for _ in range(most_mib // 8 + 1)]
    return len(kept) * 8 > most_mib


def memory_bomb(target):
    try:
        held = _held(lambda size: bytearray(b"x" * size), target["most_memory_mib"])
    except MemoryError as error:
        raise OSError(errno.ENOMEM, str(error)) from None
    threading.Event().wait(1)
    return held


def _mapped(size):
    mapped = mmap.mmap(-1, size)
    for at in range(0, size, 4096):
        mapped[at] = 1
    return mapped


def shared_memory_bomb(target):
    kept = [_mapped(8 << 20) for _ in range(target["most_memory_mib"] // 8 + 1)]
    threading.Event().wait(1)
    return bool(kept)


def memory_bomb_of_many(target):
    """Each of them has less than the limit."""
    reading, writing = os.pipe()
    children = []
    try:
        for _ in range(4):
            if (child := os.fork()) == 0:
                kept = bytearray(b"x" * ((target["most_memory_mib"] // 3) << 20))
                os.write(writing, b"x")
                threading.Event().wait(30)
                os._exit(len(kept))
            children.append(child)
        os.close(writing)
        got = 0
        while got < 4 and (read := os.read(reading, 4)):
            got += len(read)
        threading.Event().wait(1)
        return got == 4
    finally:
        for child in children:
            os.kill(child, 9)


def main():
    name, target = sys.argv[1], json.loads(sys.argv[2])
    try:
        through = globals()[name](target)
    except OSError as error:
        through, held = False, f"{type(error).__name__}: {error}"
    else:
        held = "nothing came of it"
    sys.stdout.write("THROUGH" if through else f"held: {held}")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__" and len(sys.argv) > 1:
    main()
