"""Records which files and folders of ours a piece of work goes through, as it runs in this process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from tests.docs.reading import ROOT

OURS = ("ratchet/", "services/", "workbench/")
EVERYWHERE = ("ratchet/service", "ratchet/concurrency", "ratchet/files", "ratchet/http")
"""Folders that any other may call, or that serve it: going through them leads nowhere else."""


class Walk:
    """`files` in the order in which they were entered first. `chains`: folders on the call stack, the outermost first.

    A chain tells the folders that a call went through, each time it came from another one. `returns` are the functions
    that were called from another folder while their own was waiting further out: by a callback. A property is none.
    """

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.chains: set[tuple[str, ...]] = set()
        self.returns: set[str] = set()
        self._places: dict[CodeType, str] = {}

    def take(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (file := self._file(frame.f_code)):
            return
        self.files.setdefault(file)
        chain = self._chain(frame)
        self.chains.add(chain)
        if chain.count(_folder(file)) > 1 and self._comes_from_outside(frame) and not _is_property(frame):
            self.returns.add(f"{file}: {frame.f_code.co_qualname}")

    def _chain(self, frame: FrameType) -> tuple[str, ...]:
        folders: list[str] = []
        at: FrameType | None = frame
        while at is not None:
            folder = _folder(self._file(at.f_code))
            if folder and not folder.startswith(EVERYWHERE) and (not folders or folders[-1] != folder):
                folders.append(folder)
            at = at.f_back
        return tuple(reversed(folders))

    def _comes_from_outside(self, frame: FrameType) -> bool:
        """Tell whether the caller, other people's code passed over, lies in another folder of ours."""
        caller = frame.f_back
        while caller is not None and not self._file(caller.f_code):
            caller = caller.f_back
        return caller is not None and _folder(self._file(caller.f_code)) != _folder(self._file(frame.f_code))

    def _file(self, code: CodeType) -> str:
        """Return the path of a function of ours; "" for any other."""
        found = self._places.get(code)
        if found is None:
            path = code.co_filename.removeprefix(f"{ROOT}/")
            found = self._places[code] = path if path.startswith(OURS) else ""
        return found


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _is_property(frame: FrameType) -> bool:
    owner = type(frame.f_locals.get("self"))
    return isinstance(getattr(owner, frame.f_code.co_name, None), property)


@contextmanager
def walking() -> Iterator[Walk]:
    """Record what runs in this thread, and in those that it starts, within the block."""
    walk, before = Walk(), sys.getprofile()
    threading.setprofile(walk.take)
    sys.setprofile(walk.take)
    try:
        yield walk
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
