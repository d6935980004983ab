"""Token ids in, sampled ids with their log-probabilities out: one loop over rows that come and go.

A step either lets what waits enter or adds one token to every row. A prompt is computed once for all its samples, and
what two earlier ones began with in common not at all; a row that has ended makes room at once. Of a step nothing is
copied to the host but which rows are done. Blocks; one thread. Not for every model: see cached_forward.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch.nn.functional import pad

from ratchet.conversation.stops import Stops
from ratchet.grammars.masks import GrammarRow
from ratchet.models.batcher import WaitingLine
from ratchet.service.errors import EngineError
from services.agent.engines.cached_forward import forward
from services.agent.engines.row_adapters import RowAdapters
from services.agent.engines.row_cache import BLOCK, CacheShape, PromptBeginnings, RowCache
from services.agent.engines.sampling import (
    RowMasks,
    RowSampler,
    RowSampling,
    RowTensors,
    constrain,
    masks_of,
    rows_not_finite,
)
from services.agent.engines.tokens import Answer, Completion, TokenRequest, cut, failure, not_finite

PREFILL = 4096
"""Tokens of prompts that are computed in one pass."""
SMALL_PREFILL = 256
"""Tokens, padding included, below which prompts of any length are computed together."""
MOST_PADDING = 1.25
"""Above that: tokens computed for a token needed."""
WORTH_WAITING = 32
"""Tokens in common with a prompt that is computed right now, for which another waits until it is."""
MEANWHILE = ThreadPoolExecutor(1, "masks")
"""Follows grammars behind the tokens that were drawn, while the model computes the next logits."""
PREFIX_SHARE = 8
"""One part of so many of the memory is for prefixes."""


@dataclass(slots=True, eq=False)
class _Group:
    """A request on its way. `known`: tokens of its prompt that need no computing; `fault`: why it has no answer."""

    number: int
    request: TokenRequest
    known: int = 0
    done: dict[int, Completion] = field(default_factory=dict)
    fault: EngineError | None = None
    entered: bool = False
    given_up: bool = False
    told: bool = False

    @property
    def samples(self) -> int:
        return self.request.sampling.n

    @property
    def longest(self) -> int:
        return len(self.request.ids) + self.request.sampling.max_tokens

    @property
    def ended(self) -> bool:
        return self.fault is not None or len(self.done) == self.samples

    @property
    def answer(self) -> Answer:
        return self.fault or [self.done[sample] for sample in range(self.samples)]


@dataclass(slots=True, eq=False)
class _Row:
    """`length`: positions that are computed; `made`: tokens sampled, of which `told` were passed on. `stops` looks for
    the strings that it ends at."""

    group: _Group
    sample: int
    length: int
    made: int = 0
    told: int = 0
    stops: Stops | None = None
    grammar: GrammarRow | None = None

    @property
    def full(self) -> bool:
        return self.made >= self.group.request.sampling.max_tokens


@dataclass(frozen=True, slots=True)
class _Tokens(RowTensors):
    """The tokens of each row: `last` is sampled and not computed yet, at position `length`; `ids` and `logprobs` of
    all `made`."""

    last: torch.Tensor
    length: torch.Tensor
    made: torch.Tensor
    ids: torch.Tensor
    logprobs: torch.Tensor
    done: torch.Tensor
    broken: torch.Tensor

    @classmethod
    def none_yet(cls, lengths: Sequence[int], most: int, device: torch.device) -> Self:
        rows = len(lengths)
        length = torch.tensor(lengths, dtype=torch.long, device=device)
        ids = torch.zeros(rows, most, dtype=torch.long, device=device)
        no = torch.zeros(rows, dtype=torch.bool, device=device)
        return cls(length.clone(), length, length * 0, ids, ids.float(), no, no.clone())

    def add(self, drawn: torch.Tensor, logprobs: torch.Tensor, ends: torch.Tensor) -> None:
        self.broken.logical_or_(rows_not_finite(logprobs))
        self.done.logical_or_(torch.isin(drawn, ends) | self.broken)
        self.last.copy_(drawn)
        self.ids.scatter_(1, self.made[:, None], drawn[:, None])
        self.logprobs.scatter_(1, self.made[:, None], logprobs.gather(-1, drawn[:, None]))
        self.made.add_(1)

    def wide(self, most: int) -> Self:
        more = most - self.ids.shape[1]
        ids, logprobs = pad(self.ids, (0, more)), pad(self.logprobs, (0, more))
        return type(self)(self.last, self.length, self.made, ids, logprobs, self.done, self.broken)


class DecodeLoop:
    """`max_rows`: samples generated at once; a larger group is alone. `cache_bytes`: of keys and values; what would
    need more waits, unless it is alone. `check_every`: steps between two looks at which rows are done.
    """

    def __init__(
        self,
        model: Any,
        shape: CacheShape,
        adapters: RowAdapters,
        *,
        end_ids: Iterable[int],
        max_rows: int,
        cache_bytes: int,
        check_every: int = 1,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        prefix_bytes = cache_bytes // PREFIX_SHARE
        self._model = model
        self._vocabulary: int = model.config.get_text_config().vocab_size
        self._device = shape.device
        self._adapters = adapters
        self._cache = RowCache(shape, prefix_bytes=prefix_bytes)
        self._beginnings = PromptBeginnings(BLOCK)
        self._ends = torch.tensor(sorted(end_ids), device=shape.device)
        self._end_ids = frozenset(end_ids)
        self._max_rows = max_rows
        self._max_tokens = (cache_bytes - prefix_bytes) // shape.token_bytes
        self._check_every = check_every
        self._on_step = on_step
        self._line: WaitingLine[_Group] = WaitingLine(lambda group: group.given_up)
        self._groups: dict[int, _Group] = {}
        self._entered: deque[_Group] = deque()
        """Those for whom room is reserved and whose prompts are not computed yet."""
        self._alone: deque[_Group] = deque()
        """Those in hand when a step failed: each is tried alone, so that only the guilty one fails."""
        self._steps = 0
        self._clear()

    def _clear(self) -> None:
        self._rows: list[_Row] = []
        self._tokens = _Tokens.none_yet([], 0, self._device)
        self._how = RowSampling.from_samplings([], self._device)
        self._sampler = RowSampler(self._how)

    @property
    def busy(self) -> bool:
        return bool(self._groups)

    @property
    def rows(self) -> int:
        """Samples that are being generated."""
        return len(self._rows)

    def submit(self, number: int, request: TokenRequest) -> None:
        group = self._groups[number] = _Group(number, request)
        self._beginnings.note(request.adapter, request.ids)
        self._line.add(group, group.samples, request.priority)

    def cancel(self, number: int) -> None:
        """One that is answered is no error."""
        if group := self._groups.pop(number, None):
            group.given_up = True

    @property
    def adapters_in_use(self) -> frozenset[str | None]:
        return frozenset(group.request.adapter for group in self._groups.values())

    def forget(self, adapter: str) -> None:
        """Forget what an adapter computed."""
        self._cache.prefixes.forget(adapter)

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Answer]]:
        """The answers that are ready now, by the numbers they were asked under."""
        try:
            self._leave({place for place, row in enumerate(self._rows) if row.group.given_up})
            if groups := self._entering():
                self._prefill(groups)
            elif self._rows:
                self._decode()
            self._on_step()
            self._collect()
        except Exception as error:
            self._start_over(error)
        answered = [group for group in self._groups.values() if group.ended]
        for group in answered:
            del self._groups[group.number]
        return [(group.number, group.answer) for group in answered]

    def _entering(self) -> list[_Group]:
        """The next prompts to compute together, if there is room for any."""
        if self._alone:
            return [] if self._rows else self._suspect()
        while (group := self._line.next(self._fits)) is not None:
            group.entered = True
            self._entered.append(group)
        waiting, self._entered = [group for group in self._entered if not group.given_up], deque()
        together: list[_Group] = []
        for group in waiting:
            group.known = self._cache.prefixes.length(group.request.adapter, group.request.ids)
            fits = _may_join(group, together)
            (together if fits else self._entered).append(group)
        return together

    def _suspect(self) -> list[_Group]:
        while self._alone and (group := self._alone.popleft()):
            if not group.given_up:
                group.entered = True
                return [group]
        return []

    def _fits(self, group: _Group) -> bool:
        rows = len(self._rows) + sum(one.samples for one in (group, *self._entered))
        if rows == group.samples:
            return True
        if rows > self._max_rows:
            return False
        return rows * max(one.longest for one in (group, *self._in_hand(), *self._entered)) <= self._max_tokens

    def _prefill(self, groups: Sequence[_Group]) -> None:
        """Compute each prompt once, and sample the first token of all its rows."""
        first, requests = len(self._rows), [group.request for group in groups]
        count = sum(group.samples for group in groups)
        self._cache.reserve(first + count, max(group.longest for group in (*groups, *self._in_hand())), first)
        for place, request in enumerate(requests, first):
            self._cache.begin(place, request.adapter, request.ids)
        self._adapters.use([request.adapter for request in requests])
        logits = self._prompts_computed(groups, first)
        owners = [*groups, *(group for group in groups for _ in range(group.samples - 1))]
        self._spread(groups, first)
        sampled = {id(group): iter(range(group.samples)) for group in groups}
        rows = [
            _Row(
                group,
                next(sampled[id(group)]),
                len(group.request.ids),
                stops=group.request.stops(),
                grammar=group.request.grammar(),
            )
            for group in owners
        ]
        samplings = [group.request.sampling for group in owners]
        most = max(self._tokens.ids.shape[1], *(sampling.max_tokens for sampling in samplings))
        tokens = _Tokens.none_yet([row.length for row in rows], most, self._device)
        places = {id(group): place for place, group in enumerate(groups)}
        how = RowSampling.from_samplings(samplings, self._device)
        masks = masks_of([row.grammar for row in rows], self._vocabulary)
        self._sample(rows, tokens, RowSampler(how), logits[[places[id(group)] for group in owners]], masks)
        for place, (request, bad) in enumerate(zip(requests, tokens.broken.tolist(), strict=False), first):
            if not bad:
                self._cache.remember(place, request.adapter, self._worth_keeping(request))
        self._rows += rows
        self._tokens, self._how = self._tokens.wide(most).plus(tokens), self._how.plus(how)
        self._sampler = RowSampler(self._how)

    def _worth_keeping(self, request: TokenRequest) -> Sequence[int]:
        """Return the part of a prompt to keep: all of it, or as much as another prompt had, too."""
        return (
            request.ids if request.keep else request.ids[: self._beginnings.shared_tokens(request.adapter, request.ids)]
        )

    def _prompts_computed(self, groups: Sequence[_Group], first: int) -> torch.Tensor:
        """(prompts, vocabulary): the logits after each prompt. All end together; what is short begins with padding."""
        count = max(len(group.request.ids) - group.known for group in groups)
        lengths = [len(group.request.ids) for group in groups]
        last = [[0] * max(0, count - len(group.request.ids)) + list(group.request.ids[-count:]) for group in groups]
        ids = torch.tensor(last, device=self._device)
        positions = torch.tensor(lengths, device=self._device)[:, None] + torch.arange(-count, 0, device=self._device)
        width = max(1, PREFILL // len(groups))
        for begin in range(0, count, width):
            part = slice(begin, begin + width)
            span = max(lengths) - max(0, count - begin - width)
            logits = self._forward(first, ids[:, part], positions[:, part], span)
            self._on_step()
        return logits

    def _spread(self, groups: Sequence[_Group], first: int) -> None:
        end = first + len(groups)
        for place, group in enumerate(groups, first):
            begin, end = end, end + group.samples - 1
            self._cache.copy(place, slice(begin, end), len(group.request.ids))

    def _decode(self) -> None:
        self._adapters.use([row.group.request.adapter for row in self._rows])
        span = max(row.length for row in self._rows) + 1
        grammars = [row.grammar for row in self._rows]
        last = self._tokens.last
        masks = MEANWHILE.submit(masks_of, grammars, self._vocabulary, last) if any(grammars) else None
        logits = self._forward(0, last[:, None], self._tokens.length[:, None], span)
        self._tokens.length.add_(1)
        for row in self._rows:
            row.length += 1
        self._sample(self._rows, self._tokens, self._sampler, logits, masks.result() if masks else (None, {}))

    def _sample(
        self, rows: Sequence[_Row], tokens: _Tokens, sampler: RowSampler, logits: torch.Tensor, allowed: RowMasks
    ) -> None:
        masks, faults = allowed
        for place, error in faults.items():
            rows[place].group.fault = error
        logprobs = sampler.logprobs(constrain(logits.float(), masks))
        drawn = sampler.draw(logprobs)
        tokens.add(drawn, logprobs, self._ends)
        for row in rows:
            row.made += 1

    def _forward(self, first: int, ids: torch.Tensor, positions: torch.Tensor, span: int) -> torch.Tensor:
        return forward(self._model, self._cache, first, ids, positions, span)

    def _collect(self) -> None:
        """Take what has ended out of the rows."""
        self._steps += 1
        if self._steps % self._check_every and not any(row.full for row in self._rows):
            return
        done = self._tokens.done.tolist()
        ended = {place for place, row in enumerate(self._rows) if done[place] or row.full}
        looked_at = [place for place, row in enumerate(self._rows) if row.stops or row.group.request.on_tokens]
        for place, sampled, bad in self._completions(sorted({*ended, *looked_at})):
            row = self._rows[place]
            if bad:
                row.group.fault = not_finite(row.group.request.adapter)
                continue
            completion = sampled.ended_by(row.stops)
            self._tell(row, completion)
            if place in ended or completion is not sampled:
                ended.add(place)
                row.group.done[row.sample] = completion
                self._keep(place, row, completion)
        self._leave({*ended, *(place for place, row in enumerate(self._rows) if row.group.fault)})

    def _completions(self, places: Sequence[int]) -> Iterator[tuple[int, Completion, bool]]:
        if not places:
            return
        some = self._tokens.select(torch.tensor(places, device=self._device))
        columns = zip(places, some.ids.tolist(), some.logprobs.tolist(), some.broken.tolist(), strict=True)
        for place, ids, logprobs, bad in columns:
            made = self._rows[place].made
            yield place, cut(ids[:made], logprobs[:made], self._end_ids), bad

    def _tell(self, row: _Row, completion: Completion) -> None:
        if (listen := row.group.request.on_tokens) and row.told < len(completion.ids):
            row.group.told = True
            listen(row.sample, completion.ids[row.told :], completion.logprobs[row.told :])
            row.told = len(completion.ids)

    def _keep(self, place: int, row: _Row, completion: Completion) -> None:
        request = row.group.request
        if request.keep:
            self._cache.remember(place, request.adapter, [*request.ids, *completion.ids][: row.length])

    def _leave(self, leaving: set[int]) -> None:
        """The last rows take the places of those that leave, so that the active ones are the first again."""
        if not leaving:
            return
        for place, bad in enumerate(self._tokens.broken.tolist()):
            if bad and place in leaving:
                self._cache.clear(place)
        left = len(self._rows) - len(leaving)
        movers = (place for place in range(left, len(self._rows)) if place not in leaving)
        order = [next(movers) if place in leaving else place for place in range(left)]
        for to, place in enumerate(order):
            if to != place:
                self._cache.move(place, to, self._rows[place].length)
        self._rows = [self._rows[place] for place in order]
        kept = torch.tensor(order, dtype=torch.long, device=self._device)
        self._tokens, self._how = self._tokens.select(kept), self._how.select(kept)
        self._sampler = RowSampler(self._how)

    def _in_hand(self) -> list[_Group]:
        """Those in the rows, each once."""
        return list({id(row.group): row.group for row in self._rows}.values())

    def _start_over(self, error: Exception) -> None:
        """A step failed, for instance for want of memory."""
        in_hand = [group for group in self._groups.values() if group.entered and not group.ended]
        self._clear()
        self._entered.clear()
        self._cache.release()
        for group in in_hand:
            group.entered = False
            group.done.clear()
            if len(in_hand) == 1 or group.told:
                group.fault = failure(error, sum(one.samples for one in in_hand))
            else:
                self._alone.append(group)


def _may_join(group: _Group, together: Sequence[_Group]) -> bool:
    """Return whether a prompt is computed with others: not if one of them saves it work, nor if much would be
    padding."""
    if not together:
        return True
    if any(_in_common(group, other) - group.known >= WORTH_WAITING for other in together):
        return False
    todo = [len(one.request.ids) - one.known for one in (group, *together)]
    computed = max(todo) * len(todo)
    return computed <= max(SMALL_PREFILL, MOST_PADDING * sum(todo))


def _in_common(one: _Group, other: _Group) -> int:
    """Tokens at the start that are kept."""
    if one.request.adapter != other.request.adapter:
        return 0
    pairs = zip(one.request.ids, other.request.ids, strict=False)
    same = next((place for place, (mine, its) in enumerate(pairs) if mine != its), None)
    length = min(len(one.request.ids), len(other.request.ids)) - 1 if same is None else same
    return length // BLOCK * BLOCK
