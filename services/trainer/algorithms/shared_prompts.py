"""Several answers to one prompt in one sequence: the prompt goes through the model once, not once for each answer.

    prompt (all but its last token) · last token, answer 1 · last token, answer 2 · …

Each answer sees the prompt and itself, at the positions it was sampled at; its first token is predicted from its own
copy of the prompt's last. An answer that was given several times, as right ones often are, goes through once. What the
prompts of several tasks begin with (a system prompt, example turns) may go through the model by itself, once for all.
Exact for models whose tokens meet only in attention, by the mask and positions they are given; whether a model is one
is found out by trying (logged_trainer.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ratchet.grammars.masks import Bits, Grammars, free_masks, unpack_masks
from services.trainer.data.samples import TrainingSample

NEVER = float("-inf")


def masks_of(grammars: Grammars, sample: TrainingSample, width: int | None = None) -> Bits:
    """Return a mask for each token of the completion, and up to `width` masks that allow everything."""
    masks = free_masks(width or len(sample.completion), grammars.vocabulary)
    for start, end, text in sample.grammars:
        grammars.replay(text, sample.completion[start:end], masks[start:end])
    return masks


def stacked_masks(grammars: Grammars, samples: Sequence[TrainingSample]) -> torch.Tensor:
    """(samples, tokens, words): the masks of all, as wide as the longest completion."""
    width = max(len(sample.completion) for sample in samples)
    return torch.from_numpy(np.stack([masks_of(grammars, sample, width) for sample in samples]))


def masked_logps(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """(…, vocabulary): log-probabilities among the tokens that the masks, (…, words), allow."""
    allowed = torch.from_numpy(unpack_masks(masks.cpu().numpy(), logits.shape[-1])).to(logits.device)
    return torch.log_softmax(logits.masked_fill(~allowed, NEVER), -1)


IGNORED = -100
NOBODY = -1
FEWEST_SAVED, WORTH_SAVING = 64, 0.05
"""Tokens, and their share of all, that a second pass through the model for a common prefix must save."""


@dataclass(frozen=True, slots=True)
class SharedPrompts:
    """`ids`, `positions`, `labels` (already shifted): (sequences, tokens); `segments` likewise: 0 is the prompt, k its
    kth answer, -1 padding. `sequence` and `place`, (rows, completion): where each token of the rows is predicted."""

    ids: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    segments: torch.Tensor
    sequence: torch.Tensor
    place: torch.Tensor

    def mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Additive, (sequences, 1, tokens, tokens). Padding sees itself, so that no row is empty."""
        length = self.ids.size(1)
        earlier = torch.ones(length, length, dtype=torch.bool, device=self.ids.device).tril()
        sees, seen = self.segments[:, :, None], self.segments[:, None, :]
        allowed = earlier & ((seen == sees) | ((seen == 0) & (sees > 0)))
        return torch.zeros(allowed.shape, dtype=dtype, device=self.ids.device).masked_fill(
            ~allowed, torch.finfo(dtype).min
        )[:, None]

    @property
    def answers(self) -> torch.Tensor:
        """The places at which a token of an answer is predicted."""
        return self.labels != IGNORED

    @property
    def prefix(self) -> int:
        """The number of tokens all sequences begin with, if sharing so many saves something; else 0."""
        alike = (self.ids == self.ids[:1]) & (self.segments == 0)
        length = int(alike.all(0).long().cumprod(0).sum())
        saved = (self.ids.size(0) - 1) * length
        return length if saved >= max(FEWEST_SAVED, WORTH_SAVING * self.ids.numel()) else 0

    def spread(self, masks: torch.Tensor) -> torch.Tensor | None:
        """Masks of rows, (rows, completion, words), at (sequences, tokens, words); None where two rows share a place
        and differ in their masks."""
        used = self.place != NOBODY
        placed = masks.new_zeros(*self.ids.shape, masks.size(-1))
        placed[self.sequence[used], self.place[used]] = masks[used]
        return placed if torch.equal(placed[self.sequence[used], self.place[used]], masks[used]) else None

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Values at (sequences, tokens), back as (rows, completion); 0 where a row is masked."""
        return values[self.sequence, self.place.clamp(min=0)].masked_fill(self.place == NOBODY, 0.0)


def share_prompts(
    ids: torch.Tensor, mask: torch.Tensor, completion: int, padding: int, *, together: bool = True
) -> SharedPrompts:
    """Rows (prompts padded left, completions right, the last `completion` columns) with equal prompts put together, and
    of equal answers to one prompt only the first: the others are found in its place.

    Not `together`: each row by itself, laid out in the same way.
    """
    prompts = [_strip_padding(row, seen) for row, seen in zip(ids[:, :-completion], mask[:, :-completion], strict=True)]
    answers = [_strip_padding(row, seen) for row, seen in zip(ids[:, -completion:], mask[:, -completion:], strict=True)]
    number_of: dict[tuple[int, ...], int] = {}
    start_of: dict[tuple[int, tuple[int, ...]], int] = {}
    sequences: list[_Sequence] = []
    sequence, place = torch.zeros(len(ids), completion, dtype=torch.long), torch.full((len(ids), completion), NOBODY)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        number = number_of.setdefault(tuple(prompt), len(sequences)) if together else len(sequences)
        if number == len(sequences):
            sequences.append(_Sequence(prompt))
        known = (number, tuple(answer))
        start = start_of[known] if known in start_of else start_of.setdefault(known, sequences[number].add(answer))
        sequence[row] = number
        place[row, : len(answer)] = torch.arange(start, start + len(answer))
    return SharedPrompts(
        ids=_stack_rows([one.ids for one in sequences], padding, ids.device),
        positions=_stack_rows([one.positions for one in sequences], 0, ids.device),
        labels=_stack_rows([one.labels for one in sequences], IGNORED, ids.device),
        segments=_stack_rows([one.segments for one in sequences], NOBODY, ids.device),
        sequence=sequence.to(ids.device),
        place=place.to(ids.device),
    )


def is_cheaper(plain: torch.Size, shared: torch.Size, parameters: int, width: int) -> bool:
    """Return whether the shared sequences take fewer operations; shapes are (sequences, tokens).

    A token costs about 2 · parameters, a pair of tokens that may meet 4 · width (hidden size · layers): putting long
    answers together makes more pairs, most of them masked but computed.
    """

    def cost(shape: torch.Size) -> int:
        rows, length = shape
        return rows * length * 2 * parameters + rows * length * length * 4 * width

    return cost(shared) < cost(plain)


class _Sequence:
    """A prompt, and the answers that were put behind it."""

    def __init__(self, prompt: list[int]) -> None:
        *self._before, self._last = prompt
        self._answers = 0
        self.ids = list(self._before)
        self.positions = list(range(len(self._before)))
        self.labels = [IGNORED] * len(self._before)
        self.segments = [0] * len(self._before)

    def add(self, answer: list[int]) -> int:
        """The place at which the answer's first token is predicted."""
        start = len(self.ids)
        if answer:
            self._answers += 1
            self.ids += [self._last, *answer[:-1]]
            self.positions += range(len(self._before), len(self._before) + len(answer))
            self.labels += answer
            self.segments += [self._answers] * len(answer)
        return start


def _strip_padding(row: torch.Tensor, seen: torch.Tensor) -> list[int]:
    return [int(token) for token in row[seen.bool()].tolist()]


def _stack_rows(rows: list[list[int]], value: int, device: torch.device) -> torch.Tensor:
    longest = max(1, *map(len, rows))
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], device=device)
