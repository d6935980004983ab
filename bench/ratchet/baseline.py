"""One training on right answers, without rounds, judge or users: the baseline that the rounds are held against.

The trainer's own run, with its defaults, on the references of as many tasks as the fleet's trainings take groups.
"""

from __future__ import annotations

import random
from pathlib import Path

from bench.own.families import Family, OwnTask
from bench.own.world import train, write_log
from bench.ratchet.quality import Quality
from bench.ratchet.tasks import training_problem
from bench.ratchet.verifier import MAX_TOKENS, Verifier
from schemas.messages.task import ChatMessage

TASKS = 256
NAME = "references"


def _no_template(rng: random.Random, held_out: bool) -> tuple[dict[str, str], str]:
    raise NotImplementedError("the tasks come from bench/ratchet/tasks.py")


USERS = Family("users", "", "verifier:exact", MAX_TOKENS, (), _no_template)


def taught_by_references(folder: Path, base: Path, verifier: Verifier, seed: int) -> Quality:
    """Train once and have the verifier look at it; both are kept in `folder`, and not done again."""
    if (known := verifier.read_quality(NAME)) is not None:
        return known
    rng = random.Random(f"references {seed}")
    problems = [training_problem(rng) for _ in range(TASKS)]
    tasks = [OwnTask((ChatMessage(role="user", content=one.input),), one.answer) for one in problems]
    logs = folder / "logs"
    if not logs.exists():
        write_log(logs, str(base), USERS, tasks, 0, seed)
    outcome, adapter = train(logs, folder / "adapters", str(base), "grpo", {"demonstrations": ["reference"]}, seed)
    if adapter is None:
        raise RuntimeError(f"the training on references made no adapter: {outcome.reason}")
    return verifier.quality(NAME, adapter)
