"""Turns that a client may name and need not send: OpenAI's responses and their items, messages of Anthropic's threads.

They are kept in memory, the newest up to a bound: a rollout keeps its own, the front those of each caller. What is not
kept any more is refused with a sentence, and the client sends it whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ratchet.dialects.body import Refused
from ratchet.service.newest import Newest

MOST_BYTES = 4 * 1024 * 1024

Items = Sequence[Any]
Body = Mapping[str, Any]
Key = tuple[str, str]
"""The owner, and the id of an answer or an item."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The way in which a dialect's clients name an earlier answer.

    `items`: the field that holds what is said. `previous`: the id of the answer that a request goes on from. `is_kept`:
    whether a later request may go on from this one. `answer_items`: an answer, as a later request holds it.
    `shared`: fields that the first turn gives for all. `own`: fields that the dialect does not read once the whole
    history is there. `not_kept`: the refusal of an answer that is not kept.
    """

    items: str
    previous: Callable[[Body], Any]
    is_kept: Callable[[Body], bool]
    answer_items: Callable[[Body], Items]
    not_kept: Callable[[], Refused]
    shared: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Turn:
    """`items`: what came after the answer `previous`, the turn's own answer included."""

    previous: Any
    items: Items
    shared: Body


class _Room:
    """The bytes that may still be put into one request."""

    def __init__(self, naming: Naming, most: int, setting: str) -> None:
        limit = f"{most:,} bytes" + (f" ({setting})" if setting else "")
        self._why = f"the earlier turns that this request names have more than {limit} together: name fewer of them"
        self._param = naming.items
        self._left = most

    def take(self, value: Any) -> None:
        """Raises Refused where there is no room for the value."""
        self._left -= len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if self._left < 0:
            raise Refused(400, self._why, param=self._param, code="context_length_exceeded")


class KeptTurns:
    """`owner`: who asks. Nobody is given what another was told."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_named: int = MOST_BYTES, setting: str = "") -> None:
        """`most_bytes`: of the items that may be named, and again of the turns. `most_named`: bytes that one request
        may have put in, however often it names them. `setting`: the name of the setting that gives `most_named`."""
        self._items = Newest[Key, Body](most_bytes)
        self._turns = Newest[Key, _Turn](most_bytes)
        self._most_named = most_named
        self._setting = setting

    def resolve(self, naming: Naming, body: Body, owner: str = "") -> dict[str, Any]:
        """Return the request with its whole history. Raises Refused for what is not kept, or is too much."""
        items = _items_of(naming, body)
        if items is None:
            return dict(body)
        room = _Room(naming, self._most_named, self._setting)
        parts: list[Items] = [items]
        shared: Body = {}
        previous = naming.previous(body)
        while previous:
            turn = self._turns.get((owner, str(previous)))
            if turn is None:
                raise naming.not_kept()
            room.take(turn.items)
            parts.append(turn.items)
            previous, shared = turn.previous, {**turn.shared, **shared}
        read = naming.own if naming.is_kept(body) else ()
        left = {name: value for name, value in body.items() if name not in read}
        whole = [self._whole(naming, item, owner, room) for item in chain.from_iterable(reversed(parts))]
        return {**shared, **left, naming.items: whole}

    def keep(self, naming: Naming, body: Body, size: int, told: dict[str, Any], owner: str = "") -> dict[str, Any]:
        """Note and return the answer to a request of that size in bytes, unless its client will not go on from it."""
        if naming.is_kept(body):
            said = naming.answer_items(told)
            for item in said:
                if "id" in item:
                    self._items.add((owner, item["id"]), item, len(json.dumps(item)))
            shared = {name: body[name] for name in naming.shared if name in body}
            turn = _Turn(naming.previous(body), [*(_items_of(naming, body) or ()), *said], shared)
            self._turns.add((owner, told["id"]), turn, size + len(json.dumps(said)))
        return told

    def _whole(self, naming: Naming, item: Any, owner: str, room: _Room) -> Any:
        if not (isinstance(item, dict) and item.get("type") == "item_reference"):
            return item
        found = self._items.get((owner, str(item.get("id"))))
        if found is None:
            why = "an item is named that is not kept here, or not any more: send it whole"
            raise Refused(400, why, param=naming.items)
        room.take(found)
        return found


def _items_of(naming: Naming, body: Body) -> Items | None:
    """Return what the request itself gives; None where that is no list of items."""
    given = body.get(naming.items)
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return given if isinstance(given, list) else None
