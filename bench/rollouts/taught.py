"""The trainer's selection from a log: each scored rollout of a group that teaches, once and whole, and no null."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.records.interaction import Interaction
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import JournalScan
from services.trainer.data.samples import load_samples
from services.trainer.data.selection import select

SHOWN = 8


@dataclass(frozen=True)
class Taught:
    """`nulls`: rollouts that are taught and have no score; `left_out`: lines that are not, by the reason."""

    rollouts: int
    tokens: int
    nulls: int
    left_out: dict[str, int]
    complaints: list[str]


def measure_taught(logs: Path, lines: Mapping[int, Interaction]) -> Taught:
    """Measure the trainer's own selection. `lines`: the log of interactions, by position."""
    policy = DataPolicy(agent_id="small", versions={"v1.0.0": None})
    chosen = select(JournalScan(logs, policy).read(0, None), policy)
    positions = [position for group in chosen.groups for position in group.positions]
    tokens = sum(row.tokens for row in load_samples(logs, chosen.groups))
    nulls = [position for position in positions if _is_null(lines[position])]
    complaints = [f"a null is taught: {_name(lines[one])}" for one in nulls]
    if twice := len(positions) - len(set(positions)):
        complaints.append(f"{twice} rollouts are taught twice")
    if against := _teaching(lines) ^ set(positions):
        names = [_name(lines[one]) for one in sorted(against)[:SHOWN]]
        complaints.append(f"taught, or not, against the rule: {names}: {chosen.counts}")
    whole = sum(lines[position].sampled_tokens or 0 for position in positions)
    if tokens != whole:
        complaints.append(f"{tokens:,} tokens are taught, of {whole:,} that were sampled")
    return Taught(len(positions), tokens, len(nulls), chosen.counts, complaints)


def _name(line: Interaction) -> str:
    return f"{line.task_id}/{line.sample}"


def _is_null(line: Interaction) -> bool:
    return line.sample is None or line.score is None or line.sample_status == "lost"


def _teaching(lines: Mapping[int, Interaction]) -> set[int]:
    """Positions of the rollouts that should teach: with tokens and a score, beside another with another score."""
    groups: dict[str, dict[int, float]] = defaultdict(dict)
    for position, line in lines.items():
        if not _is_null(line) and line.score is not None and line.sampled_tokens:
            groups[line.task_id][position] = line.score
    return {position for group in groups.values() if len(set(group.values())) > 1 for position in group}
