"""When to train: enough useful groups since the last run, or enough time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.logs.best_answer import is_censored
from ratchet.logs.peers import DEFAULT_BASELINE, Baseline, are_level
from schemas.messages.adapter_trained import AdapterTrained
from schemas.records.interaction import Interaction


@dataclass(frozen=True, slots=True)
class TrainingPolicy:
    """0 switches a trigger off. `baseline`: what is asked of the trainer; None leaves it its own choice."""

    after_groups: int
    every_s: float
    baseline: Baseline | None = None


@dataclass(slots=True)
class TrainingState:
    """Of one agent, as kept in the index. Times in seconds since the epoch."""

    groups: int = 0
    """Useful ones since the last request."""
    since: int = 0
    """Byte of the log of interactions from which on no training has used it."""
    asked_since: int = 0
    """The same of the pending request: what it reads stays in the log until it is answered."""
    requested_at: float = 0.0
    """By the wall clock, for people; 0 where none was asked for yet."""
    requested_even_s: float | None = None
    """The same by `DeadlineClock.even`: what counts."""
    pending: str | None = None
    """The request that is not answered yet."""
    why: str = ""
    """What brought it."""
    runs: int = 0


def teaches(lines: Sequence[Interaction], baseline: Baseline | None = None) -> bool:
    """A group, of a task that the trainer may learn from, in which some score otherwise than those that the trainer
    compares them with: where nobody says otherwise, of programs those of the same one (record 0061)."""
    if is_censored(lines[0].select):
        return False
    scored = [(line.score, line.program) for line in lines if line.score is not None]
    scores, programs = [score for score, _ in scored], [program for _, program in scored]
    return not are_level(scores, programs, baseline or DEFAULT_BASELINE)


def uses_up(outcome: AdapterTrained) -> bool:
    """Whether its window is done with: trained on, or refused after it was held against the parent.

    Too few groups, or a fault of the machine, leave it to the next training, together with what comes in until then.
    """
    return outcome.status == "trained" or (outcome.status == "refused" and bool(outcome.metrics))


def due(state: TrainingState, policy: TrainingPolicy, waited_s: float) -> str | None:
    """Why to train now, or None. `waited_s`: since the last request, infinite where there was none.

    Nothing is due while a request is open, or without anything new to learn from.
    """
    if state.pending is not None or state.groups == 0:
        return None
    if policy.after_groups and state.groups >= policy.after_groups:
        return f"{state.groups} new useful groups"
    if policy.every_s and waited_s >= policy.every_s:
        return f"{policy.every_s:g} s since the last run, {state.groups} new useful groups"
    return None
