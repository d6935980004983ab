"""The swap test of a team: each role's new version beside the old versions of its partners, and the other way round.

The newest logged prompts of the team are asked again, of the vector that answers now, of the one before it, and of the
mixed ones; as an evaluation, so that nothing learns from the answers or counts them. A mixed vector that loses says no
more than that the role had learned something. Where a role gains much more beside its partners' new versions than
beside their old ones, the roles have adapted to each other, and one of them can't go back alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group
from rich.text import Text

from ratchet.adapters.evaluations import input_sha256
from ratchet.experiments.gain import Estimate, Gain, estimate, format_interval, gain
from ratchet.logs.names import ASSIGNMENTS, EVALUATION_TASKS, is_own
from ratchet.logs.reader import read, start_of_newest
from ratchet.logs.rows import EvaluatedRow
from schemas.messages.base import DecodeError
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION, Work
from schemas.records.registry import Registry
from services.cli.eval.asking import Asking, Contestant, answers
from services.cli.eval.results import worth
from services.cli.eval.task_set import SetTask
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import UsageError, say, table

LARGE = 0.05
"""A part of the team's mean score that roles gain only together and that is more than a trifle."""
MOST_BYTES = 64 * 1024**2
"""Bytes of the newest log in which prompts are looked for, about."""
CO_ADAPTED = "co-adapted: rolled back together only"

Vector = dict[str, str]
"""The version of each role."""


@dataclass(frozen=True, slots=True)
class Swap:
    """`vectors` by what they are called; the first is the one that answers now, the last the one before it."""

    vectors: Mapping[str, Vector]

    def corners(self) -> dict[str, tuple[str, ...]]:
        """Return of each changed role which vectors are all new, old in that role, new in that role, and all old. Of
        two roles the second has the same, so the first alone is there."""
        names = {tuple(vector.values()): name for name, vector in self.vectors.items()}
        new, *_, old = self.vectors.values()
        changed = [role for role in new if new[role] != old[role]]
        mixed = {role: (new | {role: old[role]}, old | {role: new[role]}) for role in changed}
        found = {role: tuple(names[tuple(one.values())] for one in (new, *mixed[role], old)) for role in mixed}
        return found if len(changed) > 2 else dict(list(found.items())[:1])


def swap_of(registry: Registry, roles: Mapping[str, str]) -> Swap:
    """`roles`: the agent of each role. Raises UsageError where nothing can be swapped."""
    new = {role: registry.agent(agent).primary for role, agent in roles.items()}
    old = {role: registry.agent(agent).previous or BASE_VERSION for role, agent in roles.items()}
    changed = [role for role in roles if new[role] != old[role]]
    if len(changed) < 2:
        has = f"{changed[0]} alone has" if changed else "none of them has"
        raise UsageError(f"nothing to swap: of the roles {', '.join(roles)}, {has} another version than before")
    vectors, names = [new], ["all new"]
    for role in changed:
        for told, beside, one in (("new", "old", old | {role: new[role]}), ("old", "new", new | {role: old[role]})):
            if one not in vectors:
                vectors.append(one)
                names.append(f"{told} {role}, {beside} partners")
    return Swap(dict(zip([*names, "all old"], [*vectors, old], strict=True)))


def logged_tasks(logs_dir: Path, agent_id: str, most: int) -> list[SetTask]:
    """Return the newest tasks of users with different inputs, the newest last."""
    found: dict[str, Work] = {}
    newest = deque[str]()
    for line in read(logs_dir, ASSIGNMENTS, start_of_newest(logs_dir, ASSIGNMENTS, MOST_BYTES)):
        try:
            work = Work.decode(line.data)
        except DecodeError:
            continue
        if work.agent_id != agent_id or is_own(work.arm.experiment_id) or work.kept_apart or work.registered_agent:
            continue
        sha256 = input_sha256(work.input)
        if sha256 not in found:
            newest.append(sha256)
        found[sha256] = work
        if len(newest) > most:
            del found[newest.popleft()]
    return [SetTask(_as_asked(work), work.task_type, sha256) for sha256, work in found.items()]


def _as_asked(work: Work) -> Task:
    given = {name: getattr(work, name) for name in Task.model_fields}
    sampling = work.sampling
    given |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_tokens": sampling.max_tokens}
    return Task.model_construct(**given | {"work_to": None, "select": None, "pass_score": None})


@dataclass(frozen=True, slots=True)
class Asked:
    """One prompt, asked of one vector. `make` makes the task when it is its turn."""

    name: str
    sha256: str
    make: Callable[[], Task]


def tasks_of(swap: Swap, tasks: Sequence[SetTask], asking: Asking) -> dict[str, Asked]:
    """Return what is to be asked, by the ids of its tasks: prompt by prompt of all vectors."""
    return {
        f"{EVALUATION_TASKS}{asking.name}/v{at}/{number}": Asked(
            name, one.sha256, partial(_task, asking, one, vector, f"v{at}", number)
        )
        for number, one in enumerate(tasks)
        for at, (name, vector) in enumerate(swap.vectors.items())
    }


def _task(asking: Asking, one: SetTask, vector: Vector, name: str, number: int) -> Task:
    task = asking.task(one, Contestant(name), number)
    return task.model_copy(update={"adapter_version": None, "role_versions": vector})


def ask_fleet(access: FleetAccess, asked: Mapping[str, Asked], stall_s: float) -> dict[str, list[EvaluatedRow]]:
    """Return the lines of each task. Raises as `answers` does."""
    with access.client(stall_s=stall_s) as fleet:
        return answers(
            fleet,
            access.logs_dir,
            {task_id: one.make for task_id, one in asked.items()},
            stall_s,
            lambda: None,
            lambda result: say(f"{result.task_id} was refused: {result.reason}"),
        )


@dataclass(frozen=True, slots=True)
class SwapResult:
    """`gains`: by vector but the first, what it gains over that one, on the tasks that both answered.

    `together`: by role, how much more it gains beside its partners' new versions than beside their old ones.
    """

    swap: Swap
    gains: Mapping[str, Gain]
    together: Mapping[str, Estimate]

    @property
    def sentence(self) -> str:
        """The verdict: by the ends of the intervals of `together`."""
        if any(one.low > LARGE for one in self.together.values()):
            return CO_ADAPTED
        if all(one.high < LARGE for one in self.together.values()):
            return f"not co-adapted: no role needs its partners' new versions for {LARGE:g} of what it gains"
        return f"undecided: roles may gain {LARGE:g} only together or not; ask more tasks (--tasks)"

    def as_record(self) -> dict[str, Any]:
        rows = [
            {"name": name, "vector": vector, "gain": self.gains[name].as_dict() if name in self.gains else None}
            for name, vector in self.swap.vectors.items()
        ]
        together = {role: asdict(one) for role, one in self.together.items()}
        return {"vectors": rows, "together": together, "verdict": self.sentence}


def compare_vectors(swap: Swap, asked: Mapping[str, Asked], lines: Mapping[str, Sequence[EvaluatedRow]]) -> SwapResult:
    """`lines`: of each task of `asked`."""
    worths: dict[str, dict[str, list[float]]] = {name: {} for name in swap.vectors}
    for task_id, one in asked.items():
        worths[one.name][one.sha256] = _worths(lines[task_id])
    first, *others = swap.vectors
    together = {role: _together([worths[name] for name in names]) for role, names in swap.corners().items()}
    return SwapResult(swap, {name: gain(worths[first], worths[name]) for name in others}, together)


def _together(corners: Sequence[Mapping[str, Sequence[float]]]) -> Estimate:
    """Return what is gained only together, over the tasks that all of `Swap.corners` answered."""
    tasks = [task for task in corners[0] if all(one.get(task) for one in corners)]
    means = ([fmean(one[task]) for one in corners] for task in tasks)
    return estimate([(all_new - without) - (alone - all_old) for all_new, without, alone, all_old in means])


def _worths(rows: Sequence[EvaluatedRow]) -> list[float]:
    scored = (worth(row.score, row.score_status) for row in rows)
    return [one for one in scored if one is not None]


def render_swap(found: SwapResult) -> Group:
    roles = list(next(iter(found.swap.vectors.values())))
    shown = table("team", *roles, "score", "against all new", left=1 + len(roles))
    for name, vector in found.swap.vectors.items():
        its = found.gains.get(name)
        of_all: Estimate | None = next((one.before for one in found.gains.values()), None)
        score = its.after if its else of_all
        apart = format_interval(its.difference, signed=True) if its else ""
        shown.add_row(name, *(vector[role] for role in roles), format_interval(score) if score else "", apart)
    parts = [
        f"{role} gains {format_interval(one, signed=True)} more beside its partners' new versions than beside the old"
        for role, one in found.together.items()
    ]
    return Group(shown, Text("\n".join([*parts, found.sentence])))
