"""Keys and values of the rows being generated, and of prefixes that prompts have in common.

A row is a place in one tensor that begins at position 0; rows enter and leave, the active ones are always the first.
Prefixes are kept in blocks of 16 tokens, each known by the adapter and all tokens up to its end, within a bound of
bytes; the least recently used go first.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy
import torch
from transformers import Cache

MOST_REMEMBERED = 16_384
"""Beginnings, some 3 MB: two or three new ones come with an ordinary prompt."""


class PromptBeginnings:
    """Counts beginnings by hash, in whole blocks. Two that share a hash cost a block that nobody asks for again."""

    def __init__(self, block: int, most: int = MOST_REMEMBERED) -> None:
        self._block = block
        self._most = most
        self._asked: OrderedDict[int, bool] = OrderedDict()
        """True: by more than one prompt. The one that was asked for last is the last."""

    def note(self, adapter: str | None, ids: Sequence[int]) -> None:
        """A prompt is asked."""
        for beginning in self._hashes(adapter, ids):
            self._asked[beginning] = beginning in self._asked
            self._asked.move_to_end(beginning)
        while len(self._asked) > self._most:
            self._asked.popitem(last=False)

    def shared_tokens(self, adapter: str | None, ids: Sequence[int]) -> int:
        """Tokens at the start that another prompt of this adapter had, too; a multiple of the block."""
        tokens = 0
        for beginning in self._hashes(adapter, ids):
            if not self._asked.get(beginning):
                break
            tokens += self._block
        return tokens

    def _hashes(self, adapter: str | None, ids: Sequence[int]) -> Iterator[int]:
        """Yield the hash of the prompt up to the end of each whole block."""
        before = hash(adapter)
        for start in range(0, len(ids) - self._block + 1, self._block):
            before = hash((before, *ids[start : start + self._block]))
            yield before


BLOCK = 16
ROUND = 64
"""Positions are made room for in steps of that."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The shape of what one token leaves behind: in each layer a key and a value of `heads` times `width` numbers."""

    layers: int
    heads: int
    width: int
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        return 2 * self.layers * self.heads * self.width * self.dtype.itemsize


class RowsInHand(Cache):  # type: ignore[misc]
    """A cache of rows for a forward pass: its tokens' keys and values go to their positions, the row is read whole.

    `positions` (rows, tokens): below 0 is padding, which leaves nothing behind. `span`: positions that are read.
    """

    def __init__(self, kept: torch.Tensor, positions: torch.Tensor, span: int) -> None:
        super().__init__(layers=[])
        self._kept = kept
        self._span = span
        self._at = torch.where(positions < 0, kept.shape[-2] - 1, positions)
        self._rows = torch.arange(len(positions), device=positions.device)[:, None]

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self._kept[layer_idx]
        keys[self._rows, :, self._at] = key_states.transpose(1, 2)
        values[self._rows, :, self._at] = value_states.transpose(1, 2)
        return keys[:, :, : self._span], values[:, :, : self._span]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._span


class RowCache:
    """(layers, key or value, rows, heads, positions, width); the last position is where padding goes."""

    def __init__(self, shape: CacheShape, *, prefix_bytes: int) -> None:
        self.shape = shape
        self._kept = self._room(0, 0)
        self.prefixes = Prefixes(prefix_bytes)

    def _room(self, rows: int, positions: int) -> torch.Tensor:
        """Allocate zeros. A value that was never written must be finite.

        A CPU gives memory only as it is written to.
        """
        shape = (self.shape.layers, 2, rows, self.shape.heads, positions + 1, self.shape.width)
        if self.shape.device.type != "cpu":
            return torch.zeros(shape, dtype=self.shape.dtype, device=self.shape.device)
        bits = torch.from_numpy(numpy.zeros(shape, dtype=f"i{self.shape.dtype.itemsize}"))
        return bits.view(self.shape.dtype)

    def reserve(self, rows: int, positions: int, active: int) -> None:
        """Room for so many rows and positions; the first `active` rows are kept as they are."""
        _, _, had_rows, _, had_positions, _ = self._kept.shape
        if rows <= had_rows and positions < had_positions:
            return
        more = max(had_positions - 1, -(-positions // ROUND) * ROUND)
        room = self._room(max(rows, had_rows), more)
        room[:, :, :active, :, : had_positions - 1] = self._kept[:, :, :active, :, :-1]
        self._kept = room

    def release(self) -> None:
        """Give all rows' memory back."""
        self._kept = self._room(0, 0)

    def in_hand(self, first: int, positions: torch.Tensor, span: int) -> RowsInHand:
        return RowsInHand(self._kept[:, :, first : first + len(positions)], positions, span)

    def copy(self, row: int, rows: slice, length: int) -> None:
        """The first positions of a row to others."""
        self._kept[:, :, rows, :, :length] = self._kept[:, :, row : row + 1, :, :length]

    def move(self, row: int, to: int, length: int) -> None:
        self._kept[:, :, to, :, :length] = self._kept[:, :, row, :, :length]

    def clear(self, row: int) -> None:
        """Overwrite a freed row. NaN × 0 is NaN, so a new request in this row would read it."""
        self._kept[:, :, row] = 0

    def begin(self, row: int, adapter: str | None, ids: Sequence[int]) -> int:
        """Put the longest prefix that is known into a row; how many tokens of it need no computing. Never all."""
        length = 0
        for block in self.prefixes.known_blocks(adapter, ids):
            self._kept[:, :, row, :, length : length + BLOCK] = block
            length += BLOCK
        return length

    def remember(self, row: int, adapter: str | None, ids: Sequence[int]) -> None:
        """The whole blocks of a row whose positions are all computed."""
        self.prefixes.add(adapter, ids, self._kept[:, :, row])


@dataclass(frozen=True, slots=True)
class Block:
    """`kept`: (layers, 2, heads, BLOCK, width). `number`: what the blocks after it name it by; never used again."""

    number: int
    adapter: str | None
    kept: torch.Tensor


class Prefixes:
    """Blocks by the one before them and their tokens. Those before a block are never less recently used than it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._numbers = itertools.count()
        self._blocks: OrderedDict[tuple[int | str | None, tuple[int, ...]], Block] = OrderedDict()
        self.bytes = 0

    def length(self, adapter: str | None, ids: Sequence[int]) -> int:
        """Tokens that are known; never the last one, which is needed to answer."""
        return BLOCK * sum(1 for _ in self.known_blocks(adapter, ids))

    def known_blocks(self, adapter: str | None, ids: Sequence[int]) -> Iterator[torch.Tensor]:
        """Their blocks, from the start on."""
        before: int | str | None = adapter
        for start in range(0, len(ids) - BLOCK, BLOCK):
            block = self._blocks.get((before, tuple(ids[start : start + BLOCK])))
            if block is None:
                return
            yield block.kept
            before = block.number

    def add(self, adapter: str | None, ids: Sequence[int], kept: torch.Tensor) -> None:
        """`kept`: (layers, 2, heads, positions, width) of a row."""
        before: int | str | None = adapter
        used = []
        for start in range(0, len(ids) - BLOCK + 1, BLOCK):
            key = before, tuple(ids[start : start + BLOCK])
            if key not in self._blocks:
                new = kept[..., start : start + BLOCK, :].clone()
                self._blocks[key] = Block(next(self._numbers), adapter, new)
                self.bytes += new.nbytes
            used.append(key)
            before = self._blocks[key].number
        for key in reversed(used):
            self._blocks.move_to_end(key)
        while self.bytes > self._most_bytes:
            self._drop(next(iter(self._blocks)))

    def forget(self, adapter: str | None) -> None:
        """All that an adapter computed."""
        for key in [key for key, block in self._blocks.items() if block.adapter == adapter]:
            self._drop(key)

    def _drop(self, key: tuple[int | str | None, tuple[int, ...]]) -> None:
        self.bytes -= self._blocks.pop(key).kept.nbytes
