"""Look into a queue of dead letters without taking anything out, send letters back to the queues they are for, and
put away what nobody needs, or bring it back.

A letter leaves the queue only after the broker has confirmed its copy in the queue it goes back to: a crash in between
leaves both, and every handler of the fleet is idempotent. One that is dismissed leaves it only once it is on disk; one
that is restored counts as such only once the broker has confirmed it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from ratchet.bus.amqp.forwarding import CLAIM, WireMessage, unpack_message, unwrap
from ratchet.bus.amqp.frames import PERSISTENT, Properties
from ratchet.bus.amqp.short_connection import Carried
from ratchet.bus.amqp.table import UNREADABLE
from ratchet.bus.claim_store import ClaimStore
from ratchet.bus.dead_letters.letter import DEAD, DeadLetter, Kind, Listing, listing
from ratchet.service.errors import DeadLetterError

TAKEN_TIMEOUT_S = 60.0
SETTLE_S = 2.0
ASK_EVERY_S = 0.1
BACK_S = 5.0
BACK_EVERY_S = 0.01


class Held(NamedTuple):
    """A letter and what is needed to publish it again; it is ours until its channel is closed."""

    letter: DeadLetter
    tag: int
    properties: Properties
    body: bytes
    claim: str | None = None
    """The file its message is in; the letter itself holds none."""
    missing: str | None = None
    """The reason why its message can't be had."""


class Stays(NamedTuple):
    """A letter that was to go back and could not, and why."""

    id: str
    reason: str


class DeadLetterQueue:
    """The queue of dead letters or, with another `kind`, of the unroutable. `store` holds messages that letters refer
    to.

    The connection is one of `ratchet.bus.amqp.short_connection.open_connection`. A letter that was held and stays is
    back in the queue when a call returns, so the next call finds it.
    """

    def __init__(
        self, connection: BlockingConnection, namespace: str, kind: Kind = DEAD, store: ClaimStore | None = None
    ) -> None:
        self._connection = connection
        self._store = store
        self._namespace = namespace
        self._kind = kind
        self._name = namespace + kind.queue
        self._taken_out = 0

    def letters(self, limit: int | None = None) -> list[tuple[DeadLetter, bytes]]:
        """The oldest `limit` letters with their bodies; they stay in the queue."""
        with self._look() as channel:
            return [(held.letter, held.body) for held in self._hold(channel, limit)]

    def browse(self, most: int, within_s: float) -> Listing:
        """Return at most `most` letters that come within the time, without their bodies; they stay."""
        with self._look() as channel:
            total, began = self._depth(channel), time.monotonic()
            letters = [held.letter for held in self._hold(channel, most, within_s)]
            return listing(letters, max(total, len(letters)), began)

    def find(self, letter_id: str, within_s: float | None = None) -> Held | None:
        """Return that letter for reading; it stays in the queue.

        Looks at all before it, or at those that come in time.
        """
        with self._look() as channel:
            held_ones = self._hold(channel, None, within_s)
            return next((held for held in held_ones if held.letter.id == letter_id), None)

    def depth(self) -> int:
        """Return how many there are."""
        with self._connection.channel() as channel:
            return self._depth(channel)

    def requeue(
        self, wanted: Callable[[DeadLetter], bool], *, one_at_a_time: bool, say: Callable[[str], None]
    ) -> tuple[list[str], list[Stays]]:
        """Send back every letter that is wanted. Returns the ids of those that went, and those that stayed.

        With `one_at_a_time` the next goes only when the last was taken and no consumer is gone since: raises
        DeadLetterError as soon as one is.
        """
        sent, stayed = list[str](), list[Stays]()
        with self._look() as channel:
            channel.confirm_delivery()
            for held in self._hold(channel, None):
                if not wanted(held.letter):
                    continue
                consumers = self._consumers(held.letter) if one_at_a_time else 0
                if (fault := self._send_back(channel, held)) is not None:
                    stayed.append(Stays(held.letter.id, fault))
                    continue
                sent.append(held.letter.id)
                if one_at_a_time:
                    self._await_taken(held.letter, consumers)
                    say(f"{held.letter.id} taken from {held.letter.queue}")
        return sent, stayed

    def dismiss(self, wanted: Callable[[DeadLetter], bool], keep: Callable[[Held], None]) -> list[str]:
        """Take out every letter that is wanted, each once `keep` has it on disk. Returns their ids."""
        gone = list[str]()
        with self._look() as channel:
            for held in self._hold(channel, None):
                if wanted(held.letter):
                    keep(held)
                    self._take_out(channel, held)
                    gone.append(held.letter.id)
        return gone

    def restore(self, letters: Iterable[Held], note: Callable[[str], None]) -> tuple[list[str], list[Stays]]:
        """Send letters that are in no queue to those they failed in, and `note` the id of each once it is there."""
        sent, stayed = list[str](), list[Stays]()
        with self._connection.channel() as channel:
            channel.confirm_delivery()
            for kept in letters:
                message, claim, missing = self._resolve_claim(WireMessage(kept.properties, kept.body))
                held = Held(kept.letter, kept.tag, *message, claim, missing)
                if (fault := self._publish(channel, held)) is not None:
                    stayed.append(Stays(held.letter.id, fault))
                    continue
                note(held.letter.id)
                self._remove_file(held)
                sent.append(held.letter.id)
        return sent, stayed

    @contextmanager
    def _look(self) -> Iterator[BlockingChannel]:
        """A channel that letters are held in. The broker puts back what stays a moment after it is closed: that is
        waited for, though not long, for somebody else may take some out meanwhile.
        """
        there = self.depth() + self._taken_out
        try:
            with self._connection.channel() as channel:
                yield channel
        finally:
            until = time.monotonic() + BACK_S
            while self._connection.is_open and self.depth() < there - self._taken_out and time.monotonic() < until:
                self._connection.sleep(BACK_EVERY_S)

    def _hold(self, channel: BlockingChannel, limit: int | None, within_s: float | None = None) -> Iterator[Held]:
        """Yield what is in the queue now; what arrives meanwhile is left for the next look."""
        count = self._depth(channel)
        until = math.inf if within_s is None else time.monotonic() + within_s
        for _ in range(count if limit is None else min(count, limit)):
            if time.monotonic() > until:
                return
            method, properties, body = channel.basic_get(self._name)
            if method is None or properties is None or body is None:
                return
            message, claim, missing = self._resolve_claim(WireMessage(properties.properties, body))
            letter = self._kind.read(method.routing_key, *message, self._namespace)
            if missing is not None:
                letter = replace(letter, reason=f"{letter.reason} ({missing})")
            yield Held(letter, method.delivery_tag, *message, claim, missing)

    def _resolve_claim(self, letter: WireMessage) -> tuple[WireMessage, str | None, str | None]:
        """The message the letter stands for, the file it is in, and why it can't be had."""
        claim = (letter.properties.headers or {}).get(CLAIM)
        inside = unwrap(letter)
        if inside is not letter or not isinstance(claim, str):
            return inside, None, None
        data = self._store.get(claim) if self._store is not None else None
        if data is None:
            where = f"{self._store.folder} holds no such file" if self._store is not None else "its folder is not here"
            return letter, claim, f"its message is in the file {claim[:80]}, and {where}"
        return unpack_message(data), claim, None

    def _depth(self, channel: BlockingChannel) -> int:
        try:
            return int(channel.queue_declare(self._name, passive=True).method.message_count)
        except ChannelClosedByBroker:
            raise DeadLetterError(f"the broker has no queue {self._name!r}: the fleet was never up here") from None

    def _send_back(self, channel: BlockingChannel, held: Held) -> str | None:
        """Return why it stays, or None when it is back in its queue and gone from here."""
        if (fault := self._publish(channel, held)) is None:
            self._take_out(channel, held)
        return fault

    def _publish(self, channel: BlockingChannel, held: Held) -> str | None:
        """Return why it can't go back, or None when the broker has it in its queue."""
        queue = held.letter.queue
        if queue is None:
            return "it does not say which queue it was in"
        if not queue.startswith(self._namespace):
            return f"the queue {queue} is not of this fleet, whose names begin with {self._namespace!r}"
        if held.missing is not None:
            return held.missing
        try:
            headers = self._kind.headers(held.properties.headers)
        except UNREADABLE:
            return "its headers can't be read: publish its body again by hand"
        again = replace(held.properties, headers=headers, delivery_mode=PERSISTENT, expiration=None, user_id=None)
        try:
            channel.basic_publish("", queue, held.body, Carried(again), mandatory=True)
        except UnroutableError:
            return self._kind.absent.format(queue=queue)
        except NackError:
            return f"the queue {queue} does not take it (full): try later"
        return None

    def _take_out(self, channel: BlockingChannel, held: Held) -> None:
        channel.basic_ack(held.tag)
        self._taken_out += 1
        self._remove_file(held)

    def _remove_file(self, held: Held) -> None:
        if held.claim is not None and held.missing is None and self._store is not None:
            self._store.remove(held.claim)

    def _consumers(self, letter: DeadLetter) -> int:
        """Raises DeadLetterError where its queue is there and nobody would take it."""
        if letter.queue is None or (state := self._state(letter.queue)) is None:
            return 0
        _, consumers = state
        if not consumers:
            raise DeadLetterError(
                f"nobody consumes {letter.queue}: start what does, `ratchet status` names it; stopped here"
            )
        return consumers

    def _await_taken(self, letter: DeadLetter, consumers: int) -> None:
        """Wait until its queue is empty and no consumer went for a moment: a poisonous letter takes its consumer
        along."""
        queue, began = str(letter.queue), time.monotonic()
        empty_since: float | None = None
        while empty_since is None or time.monotonic() - empty_since < SETTLE_S:
            waiting, left = self._state(queue) or (0, 0)
            if left < consumers:
                raise DeadLetterError(f"a consumer of {queue} is gone since it took {letter.id}: stopped here")
            if waiting and time.monotonic() - began > TAKEN_TIMEOUT_S:
                raise DeadLetterError(f"nobody took {letter.id} from {queue} in {TAKEN_TIMEOUT_S:.0f} s: stopped here")
            empty_since = None if waiting else empty_since or time.monotonic()
            self._connection.sleep(ASK_EVERY_S)

    def _state(self, queue: str) -> tuple[int, int] | None:
        """Waiting messages and consumers; None where there is no such queue."""
        channel = self._connection.channel()
        try:
            said = channel.queue_declare(queue, passive=True).method
        except ChannelClosedByBroker:
            return None
        channel.close()
        return said.message_count, said.consumer_count
