"""Compares the answers of several contestants to the same tasks: paired differences, by family. Pure.

A task is one observation. A single answer is worth the mean over its group, which is what one drawn from it scores in
expectation; best of n is what the answer is worth that would have been served, chosen by the fleet's own scores. Where
these also measure it, best of n is flattered by their noise, for both alike.

An answer that can't be scored is worth 0: left out, it would cost its contestant nothing. One that a failure of ours
left without a score is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from ratchet.experiments.gain import Answered, Gain, gain, served_gain
from ratchet.service.prices import AgentPrices
from schemas.records.evaluation import Comparison, EvaluatedVersion, Evaluation, FamilyResult, VersionResult
from schemas.records.registry import AgentAdapters
from services.cli.eval.asking import Asking, Contestant
from services.cli.eval.solved import Spent, Tried, count_solved
from services.cli.eval.task_set import Leaks, SetTask, TaskSet

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
