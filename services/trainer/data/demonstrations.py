"""Demonstrations in a window of the log: texts that are known to be good for a prompt, as samples of a training.

The prompt is taken as it was logged; the text is tokenised as the model's own chat template writes an answer, its end
included. Some are held out: what they are worth while a training runs says whether it is of use.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import msgspec

from ratchet.adapters.evaluations import logged_input_sha256
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import LogReader
from ratchet.logs.rows import DemonstrationRow
from schemas.records.demonstration import DemonstrationSource
from services.trainer.data.demonstration_places import DemonstrationPlace, DemonstrationPlaces
from services.trainer.data.samples import TrainingSample

DEVIATIONS = 6.0
AT_LEAST_NATS = 3.0
OF_A_NORMAL = 1.4826
"""A standard deviation over the median distance from the median."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """`loss` of the whole text, in nats."""

    task_id: str
    loss: float


def doubtful(losses: Sequence[float]) -> list[int]:
    """The numbers of those far above the others, the worst first. `losses`: of whole texts, in nats."""
    if not losses:
        return []
    middle = median(losses)
    distance = OF_A_NORMAL * median(abs(loss - middle) for loss in losses)
    limit = middle + max(AT_LEAST_NATS, DEVIATIONS * distance)
    return sorted((number for number, loss in enumerate(losses) if loss > limit), key=lambda number: -losses[number])


HELD_OUT_SHARE = 1 / 8
MOST_HELD_OUT = 32

AnswerIds = Callable[[str], list[int]]
"""Tokens of a text as the model would have sampled it."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """`input_sha256`: as of an evaluation's inputs (ratchet/adapters/evaluations.py)."""

    task_id: str
    input_sha256: str
    source: DemonstrationSource
    prompt: array[int]
    completion: array[int]

    def sample(self, group: int) -> TrainingSample:
        """Return the sample, without log-probabilities: no policy of ours sampled it."""
        logprobs = array("f", bytes(4 * len(self.completion)))
        return TrainingSample(group, "", 1.0, self.prompt, self.completion, logprobs, demonstration=self.source)


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """`taught` are learned from; `held_out` say while a training runs whether it is of use.

    The numbers are those that were left out: as protected beyond what is looked at, as worth less than full marks, as
    too long, and as doubtful (doubts.py).
    """

    taught: tuple[Demonstration, ...] = ()
    held_out: tuple[Demonstration, ...] = ()
    protected: int = 0
    failed: int = 0
    too_long: int = 0
    doubtful: int = 0

    @property
    def counts(self) -> dict[str, int]:
        sources = Counter(f"demonstrations.{one.source}" for one in self.taught)
        counts = dict(sorted(sources.items())) | {
            "demonstrations.held_out": len(self.held_out) + self.protected,
            "demonstrations.failed": self.failed,
            "demonstrations.too_long": self.too_long,
            "demonstrations.doubtful": self.doubtful,
        }
        return {name: count for name, count in counts.items() if count}

    def without(self, doubtful: Collection[Demonstration]) -> Demonstrations:
        return replace(
            self,
            taught=tuple(one for one in self.taught if one not in doubtful),
            held_out=tuple(one for one in self.held_out if one not in doubtful),
            doubtful=len(doubtful),
        )


def load_demonstrations(
    logs_dir: Path, found: DemonstrationPlaces, answer_ids: AnswerIds, kept: Collection[str], *, longest: int
) -> Demonstrations:
    """Those that can be learned from, in the order of the log.

    `kept`: sums of inputs that no training may be taught; they are held out first. `longest`: tokens of a prompt and
    its answer. Raises JournalError where the log can't be read.
    """
    loaded = _load(logs_dir, found.places, answer_ids)
    fitting = [one for one in loaded if len(one.prompt) + len(one.completion) <= longest]
    wanted = min(MOST_HELD_OUT, int(len(fitting) * HELD_OUT_SHARE))
    by_place = sorted(fitting, key=lambda one: (one.input_sha256 not in kept, _spread(one.input_sha256)))
    protected = sum(one.input_sha256 in kept for one in fitting)
    held_out = {one.input_sha256 for one in by_place[: max(wanted, protected)]}
    looked_at = tuple(one for one in fitting if one.input_sha256 in held_out)[:MOST_HELD_OUT]
    return Demonstrations(
        taught=tuple(one for one in fitting if one.input_sha256 not in held_out),
        held_out=looked_at,
        protected=len(held_out) - len(looked_at),
        failed=found.failed,
        too_long=len(loaded) - len(fitting),
    )


def _spread(input_sha256: str) -> bytes:
    """The same choice in each training, whatever else is in the window."""
    return hashlib.sha256(f"held out {input_sha256}".encode()).digest()


def _load(logs_dir: Path, places: Sequence[DemonstrationPlace], answer_ids: AnswerIds) -> list[Demonstration]:
    """One for each prompt: two inputs that differ in their white space alone are the same."""
    if not places:
        return []
    wanted = {place.position: place for place in places}
    decoder, last = msgspec.json.Decoder(DemonstrationRow), places[-1].position
    found: dict[str, Demonstration] = {}
    for line in LogReader(logs_dir, INTERACTIONS, places[0].position, on_bad=lambda bad: None).whole_lines():
        if (place := wanted.get(line.position)) is not None:
            row = decoder.decode(line.data)
            text, prompt = row.reference if place.text is None else place.text, row.prompt_ids
            if place.source == "approval" and row.edited is not None:
                text, prompt = row.edited.text, row.edited.prompt_ids
            input_sha256 = logged_input_sha256(bytes(row.input))
            if text and prompt and input_sha256 is not None:
                found[input_sha256] = Demonstration(
                    row.task_id, input_sha256, place.source, array("l", prompt), array("l", answer_ids(text))
                )
        if line.position >= last:
            break
    return list(found.values())
