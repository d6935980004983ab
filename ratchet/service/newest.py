"""Remembers the newest values, up to so many bytes of them together."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Newest(Generic[Key, Value]):
    """Values up to so many bytes together, and the newest in any case."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def add(self, key: Key, value: Value, size: int) -> None:
        """Remember a value of so many bytes. The key must be new."""
        self._values[key] = value, size
        self._left -= size
        while self._left < 0 and len(self._values) > 1:
            self._left += self._values.popitem(last=False)[1][1]

    def get(self, key: Key) -> Value | None:
        found = self._values.get(key)
        return None if found is None else found[0]
