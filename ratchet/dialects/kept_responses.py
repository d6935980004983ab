"""Responses that were told, so that a client may name them, or their items, and need not send them: OpenAI's does both.

They are kept in memory, the newest up to a bound: a rollout keeps its own, the front those of each caller. What is not
kept any more is refused with a sentence, and the client sends it whole.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from ratchet.dialects.body import Refused

MOST_BYTES = 4 * 1024 * 1024
NOT_FOUND = "previous_response_not_found"
"""OpenAI's code for it."""

Items = Sequence[Any]
Key = tuple[str, str]
"""The owner, and the id of a response or an item."""


Value = TypeVar("Value")


class _Newest(Generic[Value]):
    """Values up to so many bytes together, and the newest in any case."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def add(self, key: Key, value: Value, size: int) -> None:
        self._values[key] = value, size
        self._left -= size
        while self._left < 0 and len(self._values) > 1:
            self._left += self._values.popitem(last=False)[1][1]

    def get(self, key: Key) -> Value | None:
        found = self._values.get(key)
        return None if found is None else found[0]


class KeptResponses:
    """`owner`: who asks. Nobody is given what another was told."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        """`most_bytes`: of the answers, and again of what was asked."""
        self._items = _Newest[Mapping[str, Any]](most_bytes)
        self._turns = _Newest[tuple[str | None, Items]](most_bytes)
        """By response: the response before it, and the items that came after that one."""

    def resolve(self, body: Mapping[str, Any], owner: str = "") -> dict[str, Any]:
        """The request with its whole history as `input`. Raises Refused for what is not kept."""
        items = _items_of(body)
        if items is None:
            return dict(body)
        previous = body.get("previous_response_id")
        while previous:
            turn = self._turns.get((owner, str(previous)))
            if turn is None:
                why = "is not kept here, or not any more: send the whole history as `input`"
                raise Refused(400, f"this response {why}", param="previous_response_id", code=NOT_FOUND)
            previous, items = turn[0], [*turn[1], *items]
        return {**body, "input": [self._whole(item, owner) for item in items]}

    def keep(self, body: Mapping[str, Any], size: int, told: dict[str, Any], owner: str = "") -> dict[str, Any]:
        """Note and return the response to a request of that size in bytes, unless its client wants it not stored."""
        if told["store"]:
            for item in told["output"]:
                self._items.add((owner, item["id"]), item, len(json.dumps(item)))
            turn = told["previous_response_id"], [*(_items_of(body) or ()), *told["output"]]
            self._turns.add((owner, told["id"]), turn, size)
        return told

    def _whole(self, item: Any, owner: str) -> Any:
        if not (isinstance(item, dict) and item.get("type") == "item_reference"):
            return item
        found = self._items.get((owner, str(item.get("id"))))
        if found is None:
            raise Refused(400, "an item is named that is not kept here, or not any more: send it whole", param="input")
        return found


def _items_of(body: Mapping[str, Any]) -> Items | None:
    """Return what the request itself gives; None where that is no list of items."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return given if isinstance(given, list) else None
