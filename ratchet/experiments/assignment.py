"""The arm that a unit is given to: a hash of the experiment and the unit, so that no draw is stored or shared.

A unit is a session where the task names one, else the task. The hash is uniform and, between experiments, independent.
The hash is keyed by a secret of the experiment, so that no client can choose ids by the arm they will get. It is a fair
draw only the first time a unit is met: what is remembered of units already met is the experiment's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

MANTISSA_BITS = 53


@dataclass(frozen=True, slots=True)
class Assignment:
    """`propensity` is the probability of the arm that was drawn, as in `schemas.messages.work.Arm`."""

    is_candidate: bool
    propensity: float


def draw(experiment_id: str, unit_id: str, secret: str = "") -> float:
    """Uniform in [0, 1), the same wherever and whenever it is computed with the same secret."""
    key = f"{len(experiment_id)}:{experiment_id}{unit_id}".encode()
    digest = hashlib.blake2b(key, digest_size=8, key=secret.encode()).digest()
    return float((int.from_bytes(digest, "big") >> (64 - MANTISSA_BITS)) / (1 << MANTISSA_BITS))


def assign(experiment_id: str, unit_id: str, share: float, secret: str = "") -> Assignment:
    """The candidate with probability `share`."""
    if draw(experiment_id, unit_id, secret) < share:
        return Assignment(is_candidate=True, propensity=share)
    return Assignment(is_candidate=False, propensity=1.0 - share)


def is_audited(experiment_id: str, unit_id: str, share: float) -> bool:
    """True if a unit is one of those that are audited: a draw of its own, so it says nothing about the arm."""
    return draw(f"audit of {experiment_id}", unit_id) < share


def candidate_share(assignment: Assignment) -> float:
    """The probability of the candidate, from the probability of the arm drawn."""
    return assignment.propensity if assignment.is_candidate else 1.0 - assignment.propensity
