"""Which answer of a group is the best: the best-scored, the first among equals; no score is worse than any. Pure.

The Result is a function of the logged lines alone, so that the one sent and the one rebuilt from the log are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from schemas.messages.base import Metadata
from schemas.messages.result import Result
from schemas.records.interaction import Interaction


class Scored(Protocol):
    """A line of the log, or a view of one."""

    @property
    def score(self) -> float | None: ...


Line = TypeVar("Line", bound=Scored)


def best(lines: Iterable[Line]) -> Line:
    """Of the lines of one task, in the order of its samples, the one whose answer the user gets."""
    return min(lines, key=lambda line: _rank(line.score))


def ranked(lines: Iterable[Line]) -> list[Line]:
    """The best first."""
    return sorted(lines, key=lambda line: _rank(line.score))


def best_index(scores: Sequence[float | None]) -> int:
    """Where the best of these is."""
    return min(range(len(scores)), key=lambda index: _rank(scores[index]))


def result_of(lines: Sequence[Interaction]) -> Result:
    """Of all the lines of one task, in the order of its samples."""
    line = best(lines)
    return Result.assembled(
        {
            "task_id": line.task_id,
            "response": line.response,
            "score": line.score,
            "agent_id": line.agent_id,
            "adapter_version": line.adapter_version,
            "metadata": Metadata(timestamp=line.timestamp, source="ratchet"),
            "status": line.status,
            "reason": line.reason,
            "sample": line.sample,
            "artifact": line.artifact,
        }
    )


def _rank(score: float | None) -> float:
    """The lower the better; scores are from 0 to 1."""
    return 1.0 if score is None else -score
