"""Ranks what evaluations have found: programs and versions on one set of tasks, the best first. Pure.

Of a contestant that was evaluated on a set several times by one scorer the newest evaluation counts. One is behind
another only where its whole interval lies below the other's: all else is a tie, and ties share a rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from schemas.api.evaluations import Standing
from schemas.records.evaluation import EvaluatedVersion, Evaluation, Interval

Board = tuple[str, str, str]
"""An agent, the sum of a set, and a scorer: scores of two scorers are not compared."""


def leaderboard(evaluations: Iterable[Evaluation]) -> list[Standing]:
    """Return the standings, the set that was evaluated last first."""
    boards: dict[Board, dict[str, tuple[Evaluation, EvaluatedVersion, Interval]]] = {}
    for one in sorted(evaluations, key=lambda each: each.at):
        board = boards.pop((one.agent_id, one.set.sha256, one.scorer), {})
        boards[one.agent_id, one.set.sha256, one.scorer] = board  # the newest last
        for of, score in _scores(one):
            board[of.contestant] = (one, of, score)
    return [standing for board in reversed(boards.values()) for standing in _rank_all(list(board.values()))]


def _scores(evaluation: Evaluation) -> Iterator[tuple[EvaluatedVersion, Interval]]:
    """Yield the mean score of one answer, of each contestant that has one: of one alone, what share of its answers was
    right."""
    compared = {one.contestant: one.results[0].single for one in evaluation.results}
    for number, of in enumerate(evaluation.versions):
        if of.contestant in compared:
            yield of, compared[of.contestant].after
        elif not number and compared:
            yield of, next(iter(compared.values())).before
        elif of.solved and of.solved[0].pass_at:
            yield of, of.solved[0].pass_at[0].rate


def _rank_all(found: list[tuple[Evaluation, EvaluatedVersion, Interval]]) -> list[Standing]:
    ranks = [1 + sum(other.low > score.high for *_, other in found) for *_, score in found]
    standings = [
        Standing(
            agent_id=evaluation.agent_id,
            set=evaluation.set,
            scorer=evaluation.scorer,
            version=of.version,
            program=of.program,
            rank=rank,
            is_tied=ranks.count(rank) > 1,
            score=score,
            cost_per_solved=of.solved[0].cost_per_solved if of.solved else None,
            tokens_per_solved=of.solved[0].tokens_per_solved if of.solved else None,
            unanswered=of.unanswered,
            evaluation=evaluation.name,
            at=evaluation.at,
        )
        for (evaluation, of, score), rank in zip(found, ranks, strict=True)
    ]
    return sorted(standings, key=lambda one: (one.rank, -one.score.mean, one.program or "", one.version))
