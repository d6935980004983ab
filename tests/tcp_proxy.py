"""A TCP proxy between a client and its broker, which can hold all bytes back as a firewall does, or cut."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

CHUNK = 65_536


class Proxy:
    """A proxy with its own threads; at first it passes everything on."""

    def __init__(self, target_port: int, host: str = "127.0.0.1") -> None:
        self._target = (host, target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._passing = Event()
        self._passing.set()
        self._open: list[socket.socket] = []
        self.accepted = 0
        Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def swallow(self) -> None:
        """Hold back all bytes in both directions; connections stay open, and new ones are taken."""
        self._passing.clear()

    def pass_on(self) -> None:
        """Deliver what was held back, as TCP does by sending it again."""
        self._passing.set()

    def cut(self) -> None:
        """Reset all connections; new ones are taken."""
        while self._open:
            _reset(self._open.pop())

    def close(self) -> None:
        _end(self._listener)
        self.cut()
        self.pass_on()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.close()
                    continue
                self.accepted += 1
                self._open += [near, far]
                Thread(target=self._pump, args=(near, far), daemon=True).start()
                Thread(target=self._pump, args=(far, near), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._passing.wait()
                sink.sendall(data)
        _end(source)
        _end(sink)


def _reset(end: socket.socket) -> None:
    """Close with a reset: no time to linger makes close() send one, once nobody reads from the socket."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RD)
    end.close()


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


@contextmanager
def proxy_to(host: str, port: int) -> Iterator[Proxy]:
    proxy = Proxy(port, host)
    try:
        yield proxy
    finally:
        proxy.close()
