"""Do the data support a step of the policy? The figures, the limits, and the sentence of a refusal. Pure.

Looked at once before training, with the policy training starts from. A policy that wrote its own log must find its
log-probabilities there; a log by others must not lean on a handful of tokens, nor come from too different a policy.

All figures are by token. The weight of a whole sequence is no measure of long answers: where engine and trainer differ
by s nats a token by rounding alone, the effective share of whole sequences of L tokens is exp(-s²L), which is 1 in
500 million at s = 0.05 and L = 8,000; by token it is exp(-s²) = 0.9975 at any length, and losses weigh by token too.
What weights by token do not show, that many small differences in one direction make another policy, is what the
divergence is for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from services.trainer.data.selection import Selection

LARGEST_LOG_WEIGHT = 20.0
"""Beyond it a token's weight says nothing more, and its square would be no number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a run must keep, or it is refused."""

    min_groups: int
    max_bad_share: float
    max_gap: float
    min_effective_share: float
    weight_range: tuple[float, float]
    max_divergence: float


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """Sums over the tokens of one sample, whose weight w is the new over the logged probability.

    `weights` of w, `squares` of its square, `divergence` of w - 1 - log w (Schulman's k3, never negative, whose mean is
    the KL divergence of the logged policy from the new one), `gap` of |log w|. `version` wrote the sample.
    """

    version: str
    tokens: int
    weights: float
    squares: float
    divergence: float
    gap: float


def ratio_of(version: str, log_weights: Iterable[float]) -> SampleRatio:
    """Compute the ratio from new minus logged log-probability, token by token."""
    logs = [max(-LARGEST_LOG_WEIGHT, min(LARGEST_LOG_WEIGHT, value)) for value in log_weights]
    weights = [math.exp(value) for value in logs]
    return SampleRatio(
        version=version,
        tokens=len(logs),
        weights=math.fsum(weights),
        squares=math.fsum(weight * weight for weight in weights),
        divergence=math.fsum(weight - 1.0 - value for weight, value in zip(weights, logs, strict=True)),
        gap=math.fsum(map(abs, logs)),
    )


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """`gap`: mean absolute difference per token in nats, over the policy's own samples (None: there are none).

    `effective_share`: Kish's effective sample size (sum w)^2 / sum w^2 over the number of tokens, in (0, 1].
    `mean_weight` of a token; 1 in expectation where the policy covers the log. `divergence` in nats a token.
    """

    samples: int
    gap: float | None
    effective_share: float
    mean_weight: float
    divergence: float


def match_of(ratios: Sequence[SampleRatio], own: str) -> PolicyMatch:
    """`own`: the version training starts from. Raises ValueError without samples."""
    if not ratios:
        raise ValueError("no samples to hold the policy against")
    mine = [ratio for ratio in ratios if ratio.version == own]
    tokens = sum(ratio.tokens for ratio in ratios)
    weights, squares = (math.fsum(sums) for sums in zip(*((one.weights, one.squares) for one in ratios), strict=True))
    return PolicyMatch(
        samples=len(ratios),
        gap=math.fsum(ratio.gap for ratio in mine) / sum(ratio.tokens for ratio in mine) if mine else None,
        effective_share=weights * weights / squares / tokens,
        mean_weight=weights / tokens,
        divergence=math.fsum(ratio.divergence for ratio in ratios) / tokens,
    )


def too_different(ratios: Sequence[SampleRatio], own: str, limits: Limits) -> dict[str, str]:
    """The other versions whose samples can't teach this policy, each with the reason."""

    def version_of(ratio: SampleRatio) -> str:
        return ratio.version

    by_version = itertools.groupby(sorted(ratios, key=version_of), key=version_of)
    others = {version: match_of(list(of), own) for version, of in by_version if version != own}
    faults = {version: list(_weight_faults(match, limits)) for version, match in others.items()}
    return {version: f"{' and '.join(found)}" for version, found in faults.items() if found}


def data_faults(selection: Selection, limits: Limits) -> Iterator[str]:
    """Yield why this window can't be trained on; nothing if it can."""
    if selection.bad_lines > limits.max_bad_share * max(selection.lines, 1):
        yield (
            f"the log is broken: {selection.bad_lines:,} of {selection.lines:,} lines can't be read, more than "
            f"{limits.max_bad_share:.1%}; see what writes there, or train from a later byte on"
        )
    if len(selection.groups) < limits.min_groups and not selection.demonstrations.taught:
        yield (
            f"only {len(selection.groups):,} useful groups, {limits.min_groups:,} are needed ({_account(selection)}); "
            "wait for more traffic, or ask for fewer (--set min_groups=…)"
        )


def version_faults(strangers: dict[str, str]) -> Iterator[str]:
    """Yield which samples are by too different a policy, with the advice that goes with it."""
    for version, reason in strangers.items():
        yield f"the samples of {version} are by too different a policy ({reason}): take fresher data"


def policy_faults(match: PolicyMatch, limits: Limits) -> Iterator[str]:
    """Yield why these samples can't teach this policy; nothing if they can. A figure that is no number is a fault.

    Other versions' samples have been held against the same limits: what is left is the parent's own.
    """
    found = list(_weight_faults(match, limits))
    if match.gap is not None and not match.gap <= limits.max_gap:
        found.insert(
            0, f"they differ by {match.gap:.4f} nats a token on average, {limits.max_gap:g} at most is in order"
        )
    if found:
        yield (
            f"the parent does not find its own log-probabilities in the log: {'; '.join(found)}; were base model, "
            f"weights, number format or sampling of the agent others than the trainer's?"
        )


def _weight_faults(match: PolicyMatch, limits: Limits) -> Iterator[str]:
    low, high = limits.weight_range
    if not match.divergence <= limits.max_divergence:
        yield (
            f"the policies diverge by {match.divergence:.3g} nats a token, "
            f"{limits.max_divergence:g} at most is in order"
        )
    if not match.effective_share >= limits.min_effective_share:
        yield (
            f"the tokens of {match.samples:,} samples are worth only {match.effective_share:.2f} of their number, "
            f"{limits.min_effective_share:g} is needed"
        )
    if not low <= match.mean_weight <= high:
        yield f"the mean weight of a token is {match.mean_weight:.3g}, {low:g} to {high:g} is in order"


def _account(selection: Selection) -> str:
    dropped = {name: count for name, count in selection.counts.items() if name.startswith("groups.")}
    listed = ", ".join(f"{count:,} {name.removeprefix('groups.')}" for name, count in dropped.items())
    return f"{selection.lines:,} lines read; groups left out: {listed or 'none'}"
