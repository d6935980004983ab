"""Listens at ports of a sandbox's own, for somebody outside: `listener.py CHANNEL PORT… -- COMMAND…`, run inside before
the command is.

Makes a socket that listens at each port of 127.0.0.1 of the sandbox's own network, which nothing else can reach, hands
them out over the Unix socket CHANNEL, a descriptor, and becomes the command. A socket stays in the network in which it
was made. So what is accepted there by who got it is all that a client inside can reach, at an http:// URL like any.

`listener.py CHANNEL PORT… --of PID` does the same from outside, for a sandbox that need not have a Python: it enters
the network of that process and nothing else of it, and ends. Both import what is built in, for each start waits for it.
"""

import _socket
import posix
import sys

BACKLOG = 128
OF = "--of"
OWNING_USERS = 0xB701
"""The ioctl NS_GET_USERNS: the user namespace that a namespace belongs to."""
NEW_USERS, NEW_NETWORK = 0x10000000, 0x40000000


def listening(port: int) -> _socket.socket:
    server = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    server.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)  # which what is accepted there inherits
    server.bind(("127.0.0.1", port))
    server.listen(BACKLOG)
    return server


def hand_over(channel: int, ports: list[str]) -> None:
    """All of them with one byte, which says that they listen."""
    servers = [listening(int(port)) for port in ports]
    descriptors = b"".join(server.fileno().to_bytes(4, sys.byteorder) for server in servers)
    out = _socket.socket(fileno=channel)
    out.sendmsg([b"\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)])
    for one in (*servers, out):
        one.close()


def enter(pid: str) -> None:
    """The network of that process, by way of the users it belongs to, whose first one is who started the sandbox."""
    import ctypes
    import fcntl
    import os

    libc = ctypes.CDLL(None, use_errno=True)
    network = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    for namespace, kind in ((fcntl.ioctl(network, OWNING_USERS), NEW_USERS), (network, NEW_NETWORK)):
        if libc.setns(namespace, kind) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"/proc/{pid}/ns")


def main() -> None:
    channel, *given = sys.argv[1:]
    if OF in given:
        *ports, _, pid = given
        enter(pid)
        hand_over(int(channel), ports)
    else:
        end_of_ports = given.index("--")
        hand_over(int(channel), given[:end_of_ports])
        command = given[end_of_ports + 1 :]
        posix.execv(command[0], command)


if __name__ == "__main__":
    main()
