"""The bytes of a log that were read, with their sums, for the manifest of what an adapter was trained on."""

from __future__ import annotations

import hashlib

from ratchet.logs.reader import Line
from ratchet.logs.seals import NOTHING, extend_chain
from schemas.records.adapter_card import DataRange


class RangeSums:
    """The bytes that were read, as contiguous ranges with their sums. What could not be read is a hole."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._ranges: list[DataRange] = []
        self._sum = hashlib.sha256()
        self._chain = NOTHING
        self._start = self._end = -1

    def add(self, line: Line) -> None:
        if line.position != self._end:
            self._seal()
            self._start = line.position
        self._sum.update(line.data)
        self._sum.update(b"\n")
        self._chain = extend_chain(self._chain, [line.data])
        self._end = line.end

    def read_ranges(self) -> tuple[DataRange, ...]:
        self._seal()
        return tuple(self._ranges)

    def _seal(self) -> None:
        if self._end > self._start:
            sums = {"sha256": self._sum.hexdigest(), "chain": self._chain.hex()}
            self._ranges.append(DataRange(log=self._log, start=self._start, end=self._end, **sums))
        self._sum, self._chain = hashlib.sha256(), NOTHING
        self._start = self._end = -1
