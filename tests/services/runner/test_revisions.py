"""Which program answers a Work: that of its arm, and in an experiment none but the one it is about."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet.bus.protocol import Delivery
from ratchet.bus.topology import ROLLOUTS_TOPIC
from ratchet.programs.declared import Program, Programs
from ratchet.programs.revision import revision_of
from schemas.messages.runner_rollouts import RunnerRollouts
from schemas.messages.work import Sampling, Work
from services.runner.revisions import LOOK_EVERY_S, Revisions
from tests.services.runner.conftest import MakeHouse, limits, python
from tests.waiting import until

SAYS = {name: python(f"print({name!r}, ask('x'))", limits=limits()) for name in ("old", "new")}
"""Programs that say who they are."""


WAITS = """
import time
while open("/bound/said").read() != "end": time.sleep(0.01)  # real time: until the runner has seen a change
"""


def named(work: Work, program: str, revision: str | None = None, **more: object) -> Work:
    arm = work.arm.model_copy(update={"program": program, "program_revision": revision, "experiment_id": "e"})
    return Work.model_validate(json.loads(work.encode()) | {"arm": json.loads(arm.model_dump_json())} | more)


async def test_the_arms_program_answers_the_whole_group(make_house: MakeHouse, make_work: Callable[..., Work]) -> None:
    async with make_house(SAYS) as house:
        pair = Sampling(n=2, max_tokens=200)
        by_default = await house.answered(named(make_work("t-1", sampling=pair), "new"))
        tried = named(make_work("t-2", sampling=pair), "old", revision_of(SAYS["old"]))
        in_experiment = await house.answered(tried)
        own = await house.answered(named(make_work("t-3"), "new", "0" * 64, programs=["old"]))
        gone = await house.answered(named(make_work("t-4", sampling=pair), "gone"))

    assert [one.program for one in by_default.samples] == ["new", "new"]
    assert [one.program for one in in_experiment.samples] == ["old", "old"]
    assert [one.program for one in own.samples] == ["old"]
    # one that was taken out of the file while it answered by default: the others take its place
    assert [one.program for one in gone.samples] == ["old", "new"]
    assert {one.status for one in (*by_default.samples, *in_experiment.samples, *gone.samples)} == {"finished"}


@pytest.mark.parametrize(("program", "words"), [("new", "here is revision"), ("gone", "none of that name")])
async def test_a_work_about_another_revision_is_answered_by_none(
    make_house: MakeHouse, make_work: Callable[..., Work], program: str, words: str
) -> None:
    async with make_house(SAYS) as house:
        response = await house.answered(named(make_work(sampling=Sampling(n=2, max_tokens=200)), program, "0" * 64))

        assert [(one.status, one.program) for one in response.samples] == [("lost", program)] * 2
        assert response.error is None
        ended = house.worker.running().ended
        assert [words in str(one.says) for one in ended] == [True, True]


async def test_a_program_that_changed_while_others_had_their_turn_is_not_run(
    make_house: MakeHouse, make_work: Callable[..., Work], passable: Path
) -> None:
    folder = passable
    (folder / "said").write_text("a")
    waits = python(WAITS, binds={"/bound": folder}, limits=limits())
    told: list[str] = []

    def hear(delivery: Delivery) -> None:
        told.extend(one.revision for one in RunnerRollouts.decode(delivery.body).programs)

    async with make_house({"waits": waits}, sandbox_runs_at_once=1) as house:
        await house.bus.listen(ROLLOUTS_TOPIC, hear)
        pair = named(make_work(sampling=Sampling(n=2, max_tokens=200)), "waits", before := revision_of(waits))
        answered = asyncio.create_task(house.answered(pair))
        await until(lambda: house.worker.running().waiting == 1)
        (folder / "said").write_text("other")
        await until(lambda: any(revision != before for revision in told))
        (folder / "said").write_text("end")
        first, second = (await answered).samples

    assert (first.status, second.status) == ("finished", "lost")
    assert "here is revision" in str(second.says)


async def test_a_runner_tells_which_programs_it_has(make_house: MakeHouse) -> None:
    told: list[RunnerRollouts] = []

    def hear(delivery: Delivery) -> None:
        told.append(RunnerRollouts.decode(delivery.body))

    async with make_house(SAYS) as house:
        await house.bus.listen(ROLLOUTS_TOPIC, hear)
        await until(lambda: any(one.programs for one in told))

    programs = next(one.programs for one in told if one.programs)
    assert {(one.agent_id, one.name, one.revision) for one in programs} == {
        ("small", name, revision_of(program)) for name, program in SAYS.items()
    }


def test_a_folder_that_takes_long_to_look_through_is_looked_through_less_often(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("1")
    program = Program.model_validate({"command": ("python3", "/agent/agent.py"), "binds": {"/agent": tmp_path}})
    at = iter([0.0, 0.0, 0.5, 0.5, 10.0, 10.6, 10.6, 11.1, 11.1])  # a look takes half a second
    revisions = Revisions(Programs({"small": ("mine",)}, {"mine": program}), lambda: next(at))
    before = revisions.of("mine")
    (tmp_path / "agent.py").write_text("22")

    assert revisions.of("mine") == before
    assert revisions.of("mine") != before


def test_a_change_in_what_it_binds_is_seen_within_a_second(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("1")
    program = Program.model_validate({"command": ("python3", "/agent/agent.py"), "binds": {"/agent": tmp_path}})
    at = [0.0]
    revisions = Revisions(Programs({"small": ("mine",)}, {"mine": program}), lambda: at[0])
    before = revisions.of("mine")

    (tmp_path / "agent.py").write_text("22")
    assert revisions.of("mine") == before
    at[0] = LOOK_EVERY_S

    assert revisions.of("mine") == revision_of(program) != before
    # and a folder that is gone is no program
    shutil.rmtree(tmp_path)
    at[0] = 2 * LOOK_EVERY_S
    assert (revisions.of("mine"), revisions.declared_programs()) == (None, ())
