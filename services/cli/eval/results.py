"""Compares the answers of several contestants to the same tasks: paired differences, by family. Pure.

A task is one observation. A single answer is worth the mean over its group, which is what one drawn from it scores in
expectation; best of n is what the answer is worth that would have been served, chosen by the fleet's own scores. Where
these also measure it, best of n is flattered by their noise, for both alike.

pass@k is the chance that at least one of k answers is right. Of n answers of which c are right it is estimated without
bias by 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv:2107.03374); `1 - (1 - c/n)**k` is too low. A task with fewer
than k answers says nothing of pass@k. A task without an answer is not solved. Its interval is Wilson's, over tasks: it
holds near 0 and 1, where the normal one has no width. A task's value varies at most as a coin with the same mean does,
so the interval is rather too wide than too narrow.

An answer that can't be scored is worth 0: left out, it would cost its contestant nothing. One that a failure of ours
left without a score is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import comb, sqrt
from statistics import fmean

from ratchet.experiments.gain import Answered, Gain, gain, served_gain
from ratchet.experiments.served import Z95
from ratchet.logs.rows import EvaluatedRow
from ratchet.service.prices import MICRO, AgentPrices
from schemas.messages.result import TaskUsage
from schemas.records.evaluation import (
    Comparison,
    EvaluatedVersion,
    Evaluation,
    FamilyResult,
    Interval,
    PassAt,
    Solved,
    VersionResult,
)
from schemas.records.registry import AgentAdapters
from services.cli.eval.asking import Asking, Contestant
from services.cli.eval.task_set import Leaks, SetTask, TaskSet


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of one answer; None where the log does not say it."""

    prompt_tokens: int | None = None
    sampled_tokens: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, row: EvaluatedRow) -> Spent:
        """A rollout's usage, or the ids and the seconds of an answer of one call."""
        if row.usage is not None:
            return cls(row.usage.prompt_tokens, row.usage.sampled_tokens, row.usage.seconds)
        return cls(
            None if row.prompt_ids is None else len(row.prompt_ids),
            None if row.completion_ids is None else len(row.completion_ids),
            row.latencies.get("generate_s"),
        )


@dataclass(frozen=True, slots=True)
class Tried:
    """A contestant's answers to one task. `right`: of each that has a score; none of a task that was left unanswered.
    `spent`: of all answers, also those without a score."""

    language: str | None
    level: str | None
    right: Sequence[bool]
    spent: Sequence[Spent] = ()


def pass_at(k: int, answers: int, right: int) -> float:
    """Estimate pass@k of a task without bias. `k` is at most `answers`."""
    return 1.0 - comb(answers - right, k) / comb(answers, k)


def wilson(mean: float, tasks: int) -> Interval:
    """Return the 95 % interval of a mean of values in [0, 1]; all of that without any task."""
    if not tasks:
        return Interval(mean=0.0, low=0.0, high=1.0, tasks=0)
    spread = Z95 * Z95 / tasks
    middle = (mean + spread / 2.0) / (1.0 + spread)
    half = Z95 * sqrt(mean * (1.0 - mean) / tasks + spread / (4.0 * tasks)) / (1.0 + spread)
    return Interval(mean=mean, low=max(0.0, middle - half), high=min(1.0, middle + half), tasks=tasks)


def count_solved(tried: Sequence[Tried], samples: int, price: AgentPrices | None = None) -> tuple[Solved, ...]:
    """Count all tasks, then those of each language, then of each level, where there is more than one of them."""
    languages, levels = ({one.language for one in tried}, {one.level for one in tried})
    chosen: list[tuple[str | None, str | None, Sequence[Tried]]] = [(None, None, tried)]
    if len(languages) > 1:
        chosen += [(of, None, [one for one in tried if one.language == of]) for of in sorted(filter(None, languages))]
    if len(levels) > 1:
        chosen += [
            (None, of, [one for one in tried if one.level == of]) for of in sorted(filter(None, levels), key=_order_of)
        ]
    return tuple(_count(language, level, some, samples, price) for language, level, some in chosen)


def _order_of(level: str) -> tuple[int, str]:
    known = ("easy", "medium", "hard")
    return (known.index(level) if level in known else len(known), level)


def _count(
    language: str | None, level: str | None, tried: Sequence[Tried], samples: int, price: AgentPrices | None
) -> Solved:
    right = sum(sum(one.right) for one in tried)
    spent = [one for task in tried for one in task.spent]
    read, written = (_total([getattr(one, name) for one in spent]) for name in ("prompt_tokens", "sampled_tokens"))
    tokens = None if read is None or written is None else read + written
    cost = None
    if price is not None and read is not None and written is not None:
        cost = float(price.of(TaskUsage(prompt_tokens=int(read), sampled_tokens=int(written)))) / MICRO
    return Solved(
        language=language,
        level=level,
        tasks=len(tried),
        answers=sum(len(one.right) for one in tried),
        right=right,
        pass_at=tuple(_passes(tried, samples)),
        tokens_per_solved=_per(tokens, right),
        seconds_per_solved=_per(_total([one.seconds for one in spent]), right),
        cost_per_solved=_per(cost, right),
    )


def _passes(tried: Sequence[Tried], samples: int) -> Iterator[PassAt]:
    """Yield pass@k for k = 1, 2, 4 … and all samples."""
    for k in sorted({samples, *(2**power for power in range(samples.bit_length()) if 2**power <= samples)}):
        values = [
            pass_at(k, len(one.right), sum(one.right)) if one.right else 0.0
            for one in tried
            if not one.right or len(one.right) >= k
        ]
        yield PassAt(k=k, rate=wilson(fmean(values) if values else 0.0, len(values)))


def _total(values: Sequence[float | None]) -> float | None:
    """None where one is unknown, or there is none."""
    known = [one for one in values if one is not None]
    return sum(known) if known and len(known) == len(values) else None


def _per(total: float | None, right: int) -> float | None:
    return None if total is None or not right else total / right


WORST = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One task, asked of one contestant."""

    contestant: Contestant
    one: SetTask


@dataclass(frozen=True, slots=True)
class Group:
    """The answers to one task that was asked. `scored`: of each sample the fleet's score and what it is worth; None
    without an answer."""

    asked: Asked
    scored: Sequence[tuple[float | None, float | None]] | None
    spent: Sequence[Spent] = ()

    @property
    def tried(self) -> Tried:
        one, passes = self.asked.one, self.asked.one.task.pass_score or 1.0
        right = [value >= passes for _, value in self.scored or () if value is not None]
        return Tried(one.language, one.level, right, self.spent)

    @property
    def counts(self) -> bool:
        """Tell whether it says something of its contestant: not where all its answers lack a score by our failure."""
        return self.scored is None or any(value is not None for _, value in self.scored)


Answers = Mapping[str, Sequence[Answered]]
"""The answers to each input: the fleet's score of each sample, and what it is worth."""


def worth(score: float | None, status: str | None) -> float | None:
    """None where a failure of ours left it without one."""
    return WORST if score is None and status == "unscorable" else score


def results(answers: Mapping[Contestant, Answers], families: Mapping[str, str | None]) -> list[VersionResult]:
    """Compare each contestant but the first with the first; `families` by input, of those that count."""
    baseline, *others = answers
    named = sorted({family for family in families.values() if family is not None})
    return [
        VersionResult(
            version=other.version,
            program=other.program,
            results=tuple(
                _family(answers[baseline], answers[other], family, families)
                for family in (None, *(named if len(named) > 1 else ()))
            ),
        )
        for other in others
    ]


def _family(before: Answers, after: Answers, family: str | None, families: Mapping[str, str | None]) -> FamilyResult:
    chosen = [one for one, of in families.items() if family in (None, of)]
    first, second = ({one: side[one] for one in chosen if side.get(one)} for side in (before, after))
    return FamilyResult(
        family=family,
        samples=max((len(samples) for side in (first, second) for samples in side.values()), default=0),
        single=_comparison(gain(_worths(first), _worths(second))),
        best=_comparison(
            served_gain(
                {one: first[one] for one in first if one in second},
                {one: second[one] for one in second if one in first},
            )
        ),
    )


def _worths(answers: Answers) -> dict[str, list[float]]:
    return {one: [value for _, value in samples] for one, samples in answers.items()}


def _comparison(found: Gain) -> Comparison:
    fields = {name: value for name, value in asdict(found).items() if name != "significant"}
    return Comparison.model_validate(fields)


def evaluate(
    asking: Asking,
    tasks: TaskSet,
    groups: Sequence[Group],
    scorer: str,
    adapters: AgentAdapters,
    leaks: Mapping[str, Leaks],
    price: AgentPrices | None,
    at: datetime,
) -> Evaluation:
    """Put together what is written: `groups` in the order in which contestants were named, task by task."""
    by_contestant: dict[Contestant, list[Group]] = {}
    for group in groups:
        by_contestant.setdefault(group.asked.contestant, []).append(group)
    answered: dict[Contestant, dict[str, list[Answered]]] = {
        contestant: {
            group.asked.one.sha256: scored
            for group in of_it
            if (scored := [(score, value) for score, value in group.scored or () if value is not None])
        }
        for contestant, of_it in by_contestant.items()
    }
    return Evaluation(
        name=asking.name,
        agent_id=asking.agent_id,
        at=at,
        set=tasks.record,
        scorer=scorer,
        versions=tuple(
            EvaluatedVersion(
                version=of.version,
                program=of.program,
                sha256=adapters.versions[of.version].sha256,
                leaked=len(leaks[of.version].inputs),
                unchecked=leaks[of.version].unchecked,
                unanswered=sum(group.scored is None for group in of_it),
                unscored=sum(value is None for group in of_it for _, value in group.scored or ()),
                solved=count_solved([group.tried for group in of_it if group.counts], asking.samples, price),
            )
            for of, of_it in by_contestant.items()
        ),
        results=tuple(results(answered, {group.asked.one.sha256: group.asked.one.family for group in groups})),
    )
