"""Events for whoever listens: a ring of the newest, and one cursor a client. Nothing is kept for a single client.

A client that reads too slowly finds its place in the ring gone: it is told how much it missed, and goes on. All clients
are woken together, some ten times a second and less often where there are many, and those that stand at the same place
share the bytes they get. Leaves out HTTP (api/events.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ratchet.logs.tenants import own_id, tenant_of

SIZE = 4096
"""Events in the ring."""
MOST_CLIENTS = 2000
PULSE_S = 0.1
PULSE_PER_CLIENT_S = 0.0005
"""The pause between pulses for each client: waking a thousand every half second costs some 50 ms."""
WRITE_BYTES = 64 * 1024
"""The bytes of events a client gets at a time, about."""
HEARTBEAT_S = 15.0
LONGEST_S = 600.0
"""Then a stream ends, and its client comes back with its token: it may have expired or been revoked meanwhile."""
HEARTBEAT = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class Event:
    """`frame` is what a client gets: the lines of a server-sent event, with its empty line. `owner`, `tenant`: of its
    task. `own_frame`: what clients of that tenant get, where they know the task by another id.
    """

    number: int
    kind: str
    frame: bytes
    owner: str | None = None
    tenant: str | None = None
    own_frame: bytes | None = None


class Only(NamedTuple):
    """The owner, and the tenant, whose events alone a client gets; None: anybody's."""

    owner: str | None = None
    tenant: str | None = None

    def frame(self, event: Event) -> bytes | None:
        """Return what a client gets of the event; None where it is not for the client."""
        if self.owner not in (None, event.owner) or self.tenant not in (None, event.tenant):
            return None
        return event.frame if self.tenant is None or event.own_frame is None else event.own_frame


EVERYTHING = Only()


@dataclass(eq=False)
class EventHub:
    """Use it from one event loop. `epoch` tells this process's numbers from those of the one before."""

    epoch: str
    size: int = SIZE
    most_clients: int = MOST_CLIENTS
    heartbeat_s: float = HEARTBEAT_S
    longest_s: float = LONGEST_S

    def __post_init__(self) -> None:
        self._ring: list[Event | None] = [None] * self.size
        self._last = 0
        self._incomplete = 0
        """Up to this number events were passed over because nobody listened."""
        self._wake = asyncio.Event()
        self._pulse: asyncio.TimerHandle | None = None
        self._parts: dict[tuple[int, frozenset[str], Only], tuple[bytes, int]] = {}
        self._closed = False
        self._of: Counter[str] = Counter()
        self.clients = 0

    def publish(self, kind: str, data: Any) -> None:
        """`data`: what msgspec writes as a JSON object, on one line."""
        self._last += 1
        self._put(Event(self._last, kind, self._frame(kind, data)))

    def publish_task(self, kind: str, data: Mapping[str, Any], owner: str | None) -> None:
        """The same of a task, whose key is in the field `task_id`."""
        self._last += 1
        key = data["task_id"]
        own = None if (shown := own_id(key)) == key else self._frame(kind, {**data, "task_id": shown})
        self._put(Event(self._last, kind, self._frame(kind, data), owner, tenant_of(key), own))

    def _frame(self, kind: str, data: Any) -> bytes:
        body = msgspec.json.encode(data)
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.id_of(self._last).encode(), kind.encode(), body)

    def _put(self, event: Event) -> None:
        self._ring[self._last % self.size] = event
        if self.clients and self._pulse is None:
            delay = max(PULSE_S, PULSE_PER_CLIENT_S * self.clients)
            self._pulse = asyncio.get_running_loop().call_later(delay, self._wake_all)

    def pass_over(self) -> None:
        """Count an event that nobody would get: a client that comes back later is told that something is missing."""
        self._last += 1
        self._incomplete = self._last

    def close(self) -> None:
        """Every stream ends."""
        self._closed = True
        self._wake_all()

    def id_of(self, number: int) -> str:
        return f"{self.epoch}-{number}"

    @property
    def is_full(self) -> bool:
        """No other client should be let in."""
        return self.clients >= self.most_clients

    def has_enough(self, caller: str) -> bool:
        """This caller has a quarter of the places: the others' are not theirs to take."""
        return self._of[caller] >= max(1, self.most_clients // 4)

    async def stream(
        self, last_id: str | None, kinds: frozenset[str], caller: str = "", only: Only = EVERYTHING
    ) -> AsyncGenerator[bytes, None]:
        """From the event after `last_id` on, or from now on; no `kinds` means all. Close it, so that it is counted.

        `only`: whose events alone.
        """
        self._count(caller, 1)
        clock = asyncio.get_running_loop().time
        said = began = clock()
        try:
            place, missed = self._place_of(last_id)
            yield b"retry: 2000\nid: %b\n\n" % self.id_of(place).encode()
            if missed is not None:
                yield self._gap(missed, place)
            while not self._closed and clock() - began < self.longest_s:
                if place == self._last:
                    await self._wait_for_event()
                if (oldest := self._last - self.size) > place:
                    missed, place = oldest - place, oldest
                    yield self._gap(missed, place)
                part, place = self._part(place, kinds, only) if place < self._last else (b"", place)
                if part or clock() - said >= self.heartbeat_s:
                    yield part or HEARTBEAT
                    said = clock()
        finally:
            self._count(caller, -1)

    def _count(self, caller: str, change: int) -> None:
        self.clients += change
        self._of[caller] += change
        if not self._of[caller]:
            del self._of[caller]

    async def _wait_for_event(self) -> None:
        """Wait for an event, or for a quiet time to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.heartbeat_s):
                await self._wake.wait()

    def _wake_all(self) -> None:
        self._pulse = None
        self._parts.clear()
        self._wake.set()
        self._wake = asyncio.Event()

    def _part(self, place: int, kinds: frozenset[str], only: Only) -> tuple[bytes, int]:
        """The next events after a place, and the place after them."""
        made = self._parts.get((place, kinds, only))
        if made is None:
            made = self._parts[place, kinds, only] = self._join_frames(place, kinds, only)
        return made

    def _join_frames(self, place: int, kinds: frozenset[str], only: Only) -> tuple[bytes, int]:
        frames: list[bytes] = []
        size = 0
        while place < self._last and size < WRITE_BYTES:
            place += 1
            event = self._ring[place % self.size]
            if event is None or event.number != place or (frame := only.frame(event)) is None:
                continue
            if not kinds or event.kind in kinds:
                frames.append(frame)
                size += len(frame)
        return b"".join(frames), place

    def _place_of(self, last_id: str | None) -> tuple[int, int | None]:
        """Return where a client goes on, and how many events it missed: 0 where that can't be known, None where
        none."""
        if last_id is None:
            return self._last, None
        epoch, _, text = last_id.rpartition("-")
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        if epoch != self.epoch or not 0 <= number <= self._last:
            return self._last, 0
        if number < self._incomplete:
            return self._last, self._last - number
        return number, None

    def _gap(self, missed: int, place: int) -> bytes:
        body = msgspec.json.encode({"missed": missed})
        return b"id: %b\nevent: gap\ndata: %b\n\n" % (self.id_of(place).encode(), body)
