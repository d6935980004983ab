"""The team of a real model: SmolLM2 reads mail orders as an extractor, and mends its own JSON as a mender.

The tasks are those of `ratchet demo --real`, held out by sentence and by value. A rollout is worth what `verifier:json`
gives the mender's answer; the hidden verifier, which nothing is trained or promoted by, asks for an exact one. Each
role is trained once, beside what its partner is by then; then the live test tries the two adapters in that order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.team.promoting import is_promoted
from bench.team.world import Prompt, Rollout, Vector, World
from demos.real.exact import is_exact
from demos.real.tasks import EXAMPLES, Part, RealTask, distinct_tasks, real_tasks
from ratchet.experiments.gain import gain
from ratchet.files.atomic_file import replace_file
from schemas.messages.task import ChatMessage
from services.scorer.matching.json_grade import grade

ROLES = ("extractor", "mender")
LEARNED, GROUP, HELD_OUT = 32, 4, 40
Answers = dict[str, list[float]]
"""Marks of each task's answers: 1.0 for exactly right, else 0.0."""
DRAFTS = (
    '{"name": "Anna Bell", "item": "teak fans", "quantity": 3, "price": 12.48}',
    '{"name": "Tom Reed", "item": "oak barrel", "quantity": 11, "price": 40.13}',
)
"""Drafts whose mistakes the example turns of the mender mend."""


class OrderRollout(Rollout):
    def worth(self, role: str = "mender") -> float:
        return grade(self.turns[role].sample.text, self.task.answer, self.task.criteria).score


class OrdersWorld(World):
    """One seed's orders: three fifths of sentences and values teach, a fifth is the live test's."""

    roles, rollout = ROLES, OrderRollout
    temperature, max_tokens, at_once = 0.5, 42, 64
    steps, rate = 16, 1e-3
    units, asked_at_once = 300, 50

    def tasks(self, count: int, number: int) -> list[RealTask]:
        part: Part = "live" if number >= 500 else "train"
        drawn = real_tasks(part, 1_000 * self.seed + number)
        return list(islice((task for task in drawn if task.family == "order"), count))

    def first_prompt(self, task: RealTask) -> Prompt:
        return task.input

    def second_prompt(self, task: RealTask, draft: str) -> Prompt:
        turns = [ChatMessage(role="system", content="Mend the JSON of orders.")]
        for (text, answer), wrong in zip(EXAMPLES["order"], DRAFTS, strict=True):
            turns.append(ChatMessage(role="user", content=f"{text}\n{wrong}"))
            turns.append(ChatMessage(role="assistant", content=answer))
        return (*turns, ChatMessage(role="user", content=f"{task.text}\n{draft}"))

    def exact_answers(self, vector: Vector) -> dict[str, Answers]:
        """The hidden verifier on the held-out tasks: by role, whether its answer is exactly right."""
        tasks = distinct_tasks("held_out", self.seed, 2 * HELD_OUT)
        held_out = [task for task in tasks if task.family == "order"]
        groups = self.rollouts(vector, held_out, 1, 999)
        return {
            role: {one.task.text: [float(is_exact(one.turns[role].sample.text, one.task.answer))] for (one,) in groups}
            for role in ROLES
        }


def run(world: OrdersWorld, folder: Path) -> Iterator[dict[str, Any]]:
    """Train each role, then try both in that order; yield the figures as they come. A step that is done is kept in the
    folder, and is not done again."""
    folder.mkdir(parents=True, exist_ok=True)
    vectors: list[Vector] = [dict.fromkeys(ROLES)]
    measured = [_run_once(folder / "base.json", partial(world.exact_answers, vectors[0]))]
    yield means("base", measured[0])
    for number, role in enumerate(ROLES):
        yield _run_once(folder / f"{role}-trained.json", partial(train_role, world, vectors[-1], number, folder / role))
        vectors.append(vectors[-1] | {role: folder / role / "adapter"})
        measured.append(_run_once(folder / f"{role}-measured.json", partial(world.exact_answers, vectors[-1])))
        yield means(f"with the new {role}", measured[-1])
    yield gain(measured[0]["mender"], measured[-1]["mender"]).as_dict()
    for number, pair in enumerate(pairwise(vectors)):
        yield _run_once(folder / f"{ROLES[number]}-tried.json", partial(try_role, world, *pair, number))


def train_role(world: OrdersWorld, vector: Vector, number: int, home: Path) -> dict[str, Any]:
    role = ROLES[number]
    groups = world.rollouts(vector, world.tasks(LEARNED, number), GROUP, number)
    world.train(vector[role], groups, (role,), home, "mender")
    return {"role": role, "mixed": sum(len({one.worth() for one in group}) > 1 for group in groups)}


def try_role(world: OrdersWorld, present: Vector, candidate: Vector, number: int) -> dict[str, Any]:
    promoted, units = is_promoted(world, present, candidate, number)
    return {"role": ROLES[number], "promoted": promoted, "units": units}


def _run_once(path: Path, step: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return a step's figures, with the CPU-seconds that it took; from the file if they are there."""
    if not path.exists():
        began = time.process_time()
        found = dict(step())
        replace_file(path, json.dumps(found | {"cpu_seconds": round(time.process_time() - began)}).encode())
    return dict(json.loads(path.read_text()))


def means(vector: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    return {"vector": vector} | {role: fmean(chain(*measured[role].values())) for role in ROLES}
