"""The swap test of a team: which vectors are asked, of which prompts, and what is said of their answers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from ratchet.logs.names import VALIDATION
from ratchet.logs.rows import EvaluatedRow
from schemas.messages.task import Task
from schemas.messages.work import Arm, Sampling, Work
from schemas.records.registry import AdapterEntry, AgentAdapters, EntryState, Registry
from services.cli.programs.swap import CO_ADAPTED, Asked, Swap, compare_vectors, logged_tasks, render_swap, swap_of
from services.cli.terminal import UsageError
from tests.making_work import work

BASE = "v1.0.0"
ROLES = {"writer": "small", "mender": "critic", "judge": "big"}


def adapters(primary: str, previous: str | None) -> AgentAdapters:
    names = {BASE, primary, previous or BASE}
    states = {one: EntryState.STABLE if one == primary else EntryState.SUPERSEDED for one in names}
    versions = {
        one: AdapterEntry(version=one, state=state, folder=None if one == BASE else one, sha256="a" * 64)
        for one, state in states.items()
    }
    return AgentAdapters(primary=primary, previous=previous, versions=versions)


def registry(**agents: tuple[str, str | None]) -> Registry:
    return Registry(agents={name: adapters(*of) for name, of in agents.items()})


def test_each_role_is_asked_new_beside_old_partners_and_old_beside_new_ones() -> None:
    swap = swap_of(
        registry(small=("v1.0.2", "v1.0.1"), critic=("v1.0.1", None), big=(BASE, None)),
        ROLES,
    )

    assert [" ".join(vector.values()) for vector in swap.vectors.values()] == [
        "v1.0.2 v1.0.1 v1.0.0",
        "v1.0.2 v1.0.0 v1.0.0",
        "v1.0.1 v1.0.1 v1.0.0",
        "v1.0.1 v1.0.0 v1.0.0",
    ]
    assert list(swap.vectors)[1:-1] == ["new writer, old partners", "old writer, new partners"]


@pytest.mark.parametrize(("critic", "said"), [((BASE, None), "none of them"), (("v1.0.1", None), "mender alone")])
def test_a_team_in_which_one_role_changed_at_most_has_nothing_to_swap(
    critic: tuple[str, str | None], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        swap_of(registry(small=(BASE, None), critic=critic), {"writer": "small", "mender": "critic"})


def rows(mean: float) -> list[EvaluatedRow]:
    return [EvaluatedRow("t", score=mean + by) for by in (-0.1, 0.1)]


OLD, NEW = {"writer": BASE, "mender": BASE}, {"writer": "v1.0.1", "mender": "v1.0.1"}
TEAMS: dict[str, dict[str, str]] = {
    "all new": NEW,
    "new writer, old partners": OLD | {"writer": "v1.0.1"},
    "old writer, new partners": OLD | {"mender": "v1.0.1"},
    "all old": OLD,
}


def swap_sentences(means: Sequence[float], tasks: int = 48, spread: float = 0.02) -> tuple[str, str]:
    """The verdict and the table, where a vector's tasks have these means, give or take."""
    swap = Swap(TEAMS)
    asked, lines = dict[str, Asked](), dict[str, list[EvaluatedRow]]()
    for at, (name, mean) in enumerate(zip(TEAMS, means, strict=True)):
        for n in range(tasks):
            asked[f"{name} {n}"] = Asked(name, str(n), lambda: Task(task_id="t", input="x"))
            lines[f"{name} {n}"] = rows(mean + (spread if (n >> at) % 2 else -spread))
    found = compare_vectors(swap, asked, lines)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render_swap(found))
    return found.sentence, console.export_text()


@pytest.mark.parametrize("means", [(0.8, 0.3, 0.75, 0.4), (0.8, 0.2, 0.2, 0.4)])
def test_what_is_gained_only_together_says_that_the_roles_are_rolled_back_together_only(means: tuple[float]) -> None:
    says, shown = swap_sentences(means)

    assert says == CO_ADAPTED and CO_ADAPTED in shown
    assert f"{means[1] - means[0]:+.3f} [" in shown and "0.800 [" in shown
    assert f"writer gains {means[0] - means[1] - means[2] + means[3]:+.3f} [" in shown


@pytest.mark.parametrize(
    ("means", "tasks", "spread", "said"),
    [
        ((0.8, 0.79, 0.8, 0.79), 48, 0.02, "not co-adapted"),
        ((0.9, 0.3, 0.8, 0.3), 48, 0.02, "co-adapted: rolled back"),
        ((0.9, 0.3, 0.8, 0.2), 48, 0.02, "not co-adapted"),
        ((0.8, 0.8, 0.8, 0.2), 48, 0.02, "not co-adapted"),
        ((0.8, 0.75, 0.8, 0.8), 16, 0.1, "undecided"),
        ((0.8, 0.9, 0.9, 0.8), 1, 0.0, "undecided"),
    ],
)
def test_a_role_that_learned_for_itself_is_told_apart_from_one_that_adapted(
    means: tuple[float, ...], tasks: int, spread: float, said: str
) -> None:
    assert swap_sentences(means, tasks, spread)[0].startswith(said)


def test_each_of_three_roles_that_changed_is_measured_beside_new_and_old_partners() -> None:
    swap = swap_of(registry(small=("v1.0.1", None), critic=("v1.0.1", None), big=("v1.0.1", None)), ROLES)

    corners = swap.corners()

    assert list(corners) == list(ROLES)
    assert corners["mender"] == ("all new", "old mender, new partners", "new mender, old partners", "all old")


def test_the_newest_prompts_of_users_are_asked_again_each_once_with_the_sampling_that_they_had(tmp_path: Path) -> None:
    def logged(name: str, text: str, **given: object) -> Work:
        return work(name, Sampling(n=4, temperature=0.5, max_tokens=9), input=text, **given)

    works = [
        logged("old", "a"),
        logged("twice", "b"),
        logged("again", "b"),
        logged("own", "c", arm=Arm(sequence=0, experiment_id=f"{VALIDATION}small-x")),
        logged("apart", "d", kept_apart=True),
        logged("other", "e", agent_id="critic"),
        logged("last", "f", session_id="s", reference="fine"),
    ]
    (tmp_path / "assignments.jsonl").write_bytes(b"".join(one.encode() + b"\n" for one in works))

    found = logged_tasks(tmp_path, "small", 2)

    assert [(one.task.task_id, one.task.temperature, one.task.max_tokens) for one in found] == [
        ("again", 0.5, 9),
        ("last", 0.5, 9),
    ]
    assert found[1].task.reference == "fine"
