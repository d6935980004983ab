"""Servers of a socket that listens inside a sandbox. They can be pickled, since any process may run the job, and read
nothing once root's privileges are given up."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod


class Answering(ABC):
    def __call__(self, listening: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(listening,), daemon=True).start()

    def _serve(self, listening: socket.socket) -> None:
        with listening:
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    @staticmethod
    @abstractmethod
    def answer(client: socket.socket) -> None: ...


class SaysBack(Answering):
    """Echo all that comes; close when the other side has closed."""

    @staticmethod
    def answer(client: socket.socket) -> None:
        with client:
            while part := client.recv(65_536):
                client.sendall(part)


class Heard(Answering):
    """Answer a line, once."""

    @staticmethod
    def answer(client: socket.socket) -> None:
        with client:
            client.sendall(b"heard " + client.recv(100))
