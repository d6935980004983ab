"""The way out of a sandbox that has no network: `relay.py PORT… -- COMMAND…`, run inside, in place of the command.

Listens at each port of 127.0.0.1 of the sandbox's own network, which nothing outside can reach, and carries each
connection to the Unix socket FOLDER/PORT that was bound in from outside. So an unchanged client finds an http:// URL.
It starts the command when it listens, and ends with it, by its exit code. One thread and the standard library alone:
it counts against the limits of the run, and it is the program's to break.

`relay.py --of PID PORT=SOCKET…` does the same from outside, for a sandbox that need not have a Python: it enters the
network of that process and nothing else of it, says when it listens, and ends with its stdin.
"""

import contextlib
import os
import select
import socket
import sys

FOLDER = "/run/ratchet"
FROM_OUTSIDE = "--of"
OWNING_USERS = 0xB701
"""The ioctl NS_GET_USERNS: the user namespace that a namespace belongs to."""
NEW_USERS, NEW_NETWORK = 0x10000000, 0x40000000
LISTENS = b"\n"
MOST_CONNECTIONS = 64
"""More wait in the kernel's queue."""
BUFFER = 65_536
NOT_EXECUTABLE, NOT_FOUND = 126, 127


class Stream:
    """From one socket to another. `ended`: nothing more comes; `told`: and the other side knows."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.waiting = bytearray()
        self.ended = self.told = False

    @property
    def takes(self) -> bool:
        return not self.ended and len(self.waiting) < BUFFER

    def read(self) -> None:
        try:
            part = self.source.recv(BUFFER)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self.waiting += part
        self.ended = not part

    def write(self) -> None:
        try:
            while self.waiting:
                del self.waiting[: self.sink.send(self.waiting)]
        except BlockingIOError:
            return
        except OSError:
            self.ended = True
            self.waiting.clear()
        if self.ended and not self.told:
            self.told = True
            with contextlib.suppress(OSError):
                self.sink.shutdown(socket.SHUT_WR)


def listening(port: int) -> socket.socket:
    server = socket.create_server(("127.0.0.1", port), backlog=128)
    server.setblocking(False)
    return server


def connected(server: socket.socket, place: str) -> list[Stream]:
    """A stream each way; none where either side is gone already."""
    try:
        client, _ = server.accept()
    except OSError:
        return []
    outside = socket.socket(socket.AF_UNIX)
    try:
        outside.connect(place)
    except OSError:
        client.close()
        outside.close()
        return []
    client.setblocking(False)
    outside.setblocking(False)
    return [Stream(client, outside), Stream(outside, client)]


def started(command: list[str]) -> int:
    try:
        return os.posix_spawnp(command[0], command, os.environ)
    except PermissionError:
        os._exit(NOT_EXECUTABLE)
    except OSError:
        os._exit(NOT_FOUND)


def carry(servers: dict[socket.socket, str], end: int) -> None:
    """To the Unix socket of each, until `end`, a descriptor, can be read: the command has ended, or who wants it."""
    pairs: list[list[Stream]] = []
    while True:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        for server in servers if len(pairs) < MOST_CONNECTIONS else ():
            poll.register(server, select.POLLIN)
        wanted: dict[socket.socket, int] = {}
        for one in (stream for pair in pairs for stream in pair):
            wanted[one.source] = wanted.get(one.source, 0) | (select.POLLIN if one.takes else 0)
            wanted[one.sink] = wanted.get(one.sink, 0) | (select.POLLOUT if one.waiting else 0)
        for place, events in wanted.items():
            if events:
                poll.register(place, events)
        found = {descriptor for descriptor, _ in poll.poll()}
        if end in found:
            return
        for server, path in servers.items():
            if server.fileno() in found and (pair := connected(server, path)):
                pairs.append(pair)
        for one in (stream for pair in pairs for stream in pair):
            if one.takes and one.source.fileno() in found:
                one.read()
            one.write()
        for pair in [pair for pair in pairs if all(stream.told for stream in pair)]:
            pairs.remove(pair)
            for stream in pair:
                stream.source.close()


def enter(pid: int) -> None:
    """The network of that process, by way of the users it belongs to, whose first one is who started the sandbox."""
    import ctypes
    import fcntl

    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    for namespace, kind in ((fcntl.ioctl(network, OWNING_USERS), NEW_USERS), (network, NEW_NETWORK)):
        if libc.setns(namespace, kind) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"/proc/{pid}/ns")
        os.close(namespace)


def outside(pid: int, places: list[str]) -> None:
    """A socket below any folder, however long its path: it is named by way of the folder's descriptor."""
    sockets = {}
    for port, _, path in (place.partition("=") for place in places):
        folder, name = os.path.split(path)
        sockets[int(port)] = f"/proc/self/fd/{os.open(folder, os.O_PATH)}/{name}"
    enter(pid)
    servers = {listening(port): path for port, path in sockets.items()}
    os.write(sys.stdout.fileno(), LISTENS)
    carry(servers, sys.stdin.fileno())


def main() -> None:
    if sys.argv[1] == FROM_OUTSIDE:
        outside(int(sys.argv[2]), sys.argv[3:])
        return
    end_of_ports = sys.argv.index("--")
    servers = {listening(int(port)): f"{FOLDER}/{port}" for port in sys.argv[1:end_of_ports]}
    child = started(sys.argv[end_of_ports + 1 :])
    carry(servers, os.pidfd_open(child))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
