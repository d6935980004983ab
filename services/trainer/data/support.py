"""Do the data support a step of the policy? The figures, the limits, and the sentence of a refusal. Pure.

Looked at once before training, with the policy training starts from. A policy that wrote its own log must find its
log-probabilities there; a log by others must not lean on a handful of samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.trainer.data.selection import Selection

NOTHING_AGAINST_IT = "a dry run stops here: nothing speaks against training"
"""What a dry run says of data that could be trained on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run must have, or it is refused."""

    min_groups: int
    max_bad_share: float
    max_gap: float
    min_effective_share: float
    weight_range: tuple[float, float]


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """Of one sample: `log_weight` is the sum over its tokens of new minus logged log-probability, `gap` the sum of the
    absolute differences. `own`: the policy training starts from is the one that wrote it."""

    log_weight: float
    gap: float
    tokens: int
    own: bool


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """`gap`: mean absolute difference per token in nats, over the policy's own samples (None: there are none).

    `effective_share`: Kish's effective sample size (sum w)^2 / sum w^2 over the number of samples, in (0, 1].
    `mean_weight`: the mean importance weight; 1 in expectation where the policy covers the log.
    """

    samples: int
    gap: float | None
    effective_share: float
    mean_weight: float


def match_of(ratios: Sequence[SampleRatio]) -> PolicyMatch:
    """Raises ValueError without samples. Weights are of whole sequences."""
    if not ratios:
        raise ValueError("no samples to hold the policy against")
    own = [ratio for ratio in ratios if ratio.own]
    gap = math.fsum(ratio.gap for ratio in own) / sum(ratio.tokens for ratio in own) if own else None
    largest = max(ratio.log_weight for ratio in ratios)
    weights = [math.exp(ratio.log_weight - largest) for ratio in ratios]
    total, squares = math.fsum(weights), math.fsum(weight * weight for weight in weights)
    return PolicyMatch(
        samples=len(ratios),
        gap=gap,
        effective_share=total * total / squares / len(ratios),
        mean_weight=math.exp(min(largest, 700.0)) * total / len(ratios),
    )


def data_faults(selection: Selection, limits: Limits) -> Iterator[str]:
    """Why this window can't be trained on; nothing if it can."""
    if selection.bad_lines > limits.max_bad_share * max(selection.lines, 1):
        yield (
            f"the log is broken: {selection.bad_lines:,} of {selection.lines:,} lines can't be read, more than "
            f"{limits.max_bad_share:.1%}; see what writes there, or train from a later byte on"
        )
    if len(selection.groups) < limits.min_groups:
        yield (
            f"only {len(selection.groups):,} useful groups, {limits.min_groups:,} are needed ({_account(selection)}); "
            f"wait for more traffic, or lower min_groups"
        )


def policy_faults(match: PolicyMatch, limits: Limits) -> Iterator[str]:
    """Why these samples can't teach this policy; nothing if they can. A figure that is no number is a fault."""
    low, high = limits.weight_range
    if match.gap is not None and not match.gap <= limits.max_gap:
        yield (
            f"the parent does not find its own log-probabilities in the log: they differ by {match.gap:.4f} nats a "
            f"token on average, {limits.max_gap:g} at most is in order; were base model, weights, number format or "
            f"sampling of the agent others than the trainer's?"
        )
    if not match.effective_share >= limits.min_effective_share:
        yield (
            f"the {match.samples:,} samples are worth only {match.effective_share * match.samples:,.0f} to this policy "
            f"({match.effective_share:.2f} of them, {limits.min_effective_share:g} are needed): take fresher data"
        )
    if not low <= match.mean_weight <= high:
        yield (
            f"the mean importance weight is {match.mean_weight:.3g}, {low:g} to {high:g} is in order: the log was "
            f"written by too different a policy; take fresher data"
        )


def _account(selection: Selection) -> str:
    dropped = {name: count for name, count in selection.counts.items() if name.startswith("groups.")}
    listed = ", ".join(f"{count:,} {name.removeprefix('groups.')}" for name, count in dropped.items())
    return f"{selection.lines:,} lines read; groups left out: {listed or 'none'}"
