"""Compares the answers of several versions to the same tasks: paired differences, by family. Pure.

A task is one observation. A single answer is worth the mean over its group, which is what one drawn from it scores in
expectation; best of n is what the answer is worth that would have been served, chosen by the fleet's own scores. Where
these also measure it, best of n is flattered by their noise, for both versions alike.

An answer that can't be scored is worth 0: left out, it would cost its version nothing. One that a failure of ours left
without a score is left out, and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ratchet.experiments.gain import Answered, Gain, gain, served_gain
from schemas.records.evaluation import Comparison, FamilyResult, VersionResult

WORST = 0.0
Answers = Mapping[str, Sequence[Answered]]
"""The answers to each input: the fleet's score of each sample, and what it is worth."""


def worth(score: float | None, status: str | None) -> float | None:
    """None where a failure of ours left it without one."""
    return WORST if score is None and status == "unscorable" else score


def results(answers: Mapping[str, Answers], families: Mapping[str, str | None]) -> list[VersionResult]:
    """Compare each version but the first with the first; `families` by input, of those that count."""
    baseline, *others = answers
    named = sorted({family for family in families.values() if family is not None})
    return [
        VersionResult(
            version=version,
            results=tuple(
                _family(answers[baseline], answers[version], family, families)
                for family in (None, *(named if len(named) > 1 else ()))
            ),
        )
        for version in others
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
