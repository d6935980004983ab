"""The first answer that passes ends its group: what runs is called off and gone, what waits never starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from ratchet.bus.topology import RESPONSES, fleet_topology
from ratchet.http.server.application import application
from ratchet.logs.best_answer import result_of
from ratchet.rollouts.answers import key_of
from ratchet.rollouts.rollout import Budget
from schemas.messages.response import Response, Sample, Usage
from schemas.messages.reward import SampleScore
from schemas.messages.task import Task
from schemas.messages.work import Sampling
from services.runner.early_stop import ANOTHER_PASSED, EarlyStop, Moments
from services.runner.kept_rollouts import KeptRollouts
from services.runner.slots import NoTurn, Slots
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import ScoringRequest
from services.scorer.worker import ScorerWorker
from tests.memory_bus import MemoryBus
from tests.processes import marked
from tests.services.orchestrator.house import house
from tests.services.runner.conftest import MakeHouse, delivery, limits, python
from tests.services.runner.test_runner_worker import SAY, MakeWork
from tests.services.scorer.scripted import Scripted
from tests.serving import serving
from tests.waiting import until

MARK = "ratchet-early-stop-mark"
HANGS = f"import signal, subprocess; subprocess.run(['python3', '-c', 'import signal; signal.pause()', '{MARK}'])"
FIRST: dict[str, Any] = {"select": "first-passing", "reference": "ab"}


class Exact(Scripted):
    """What has the reference in it passes; the rest is half right."""

    def __init__(self) -> None:
        super().__init__(())
        self.held = asyncio.Event()
        self.held.set()

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        self.requests.append(request)
        await self.held.wait()
        return [SampleScore(score=1.0 if str(request.reference) in one.text else 0.5) for one in request.answers]


@asynccontextmanager
async def scorer(of_fleet: MemoryBus | None = None) -> AsyncIterator[tuple[Exact, str]]:
    bus, settings, strategy = of_fleet or MemoryBus(fleet_topology(("small",))), ScorerSettings(), Exact()
    worker = ScorerWorker(settings, bus, strategy)
    if of_fleet is not None:
        await of_fleet.consume(RESPONSES, worker.handle, prefetch=8)
    async with serving(application("scorer", worker.routers(), settings, worker.trouble)) as url:
        yield strategy, url


async def test_what_runs_when_one_passes_is_called_off_and_gone_and_what_waits_never_starts(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    programs = {
        "hangs": python(HANGS, limits=limits(seconds=600)),
        "fails": python("print('half')"),
        "passes": python("print(ask('ab'))"),
    }
    async with (
        scorer() as (strategy, url),
        make_house(programs, runner_scorer_url=url, sandbox_runs_at_once=3) as house,
    ):
        # given a group all of whose places are taken by what hangs, so that two of its rollouts wait for their turn
        strategy.held.clear()
        dealt = ("hangs", "fails", "passes", "hangs", "hangs", "fails", "passes")
        work = make_work(sampling=Sampling(n=7, max_tokens=200), programs=dealt, **FIRST)
        handled = asyncio.create_task(house.worker.handle(delivery(work)))
        await until(lambda: len(marked(MARK)) >= 3 and len(strategy.requests) == 2)
        # when the scorer says that one passes
        strategy.held.set()
        await handled
        kept = KeptRollouts(house.worker._settings.runner_dir, 10**9)

    # then the rest is over
    assert marked(MARK) == []
    assert kept.bytes == 0
    response = Response.decode(house.bus.deliveries_published(RESPONSES)[0].body)
    called_off = [number for number, sample in enumerate(response.samples) if sample.status == "cancelled"]
    assert called_off == [0, 3, 4, 5, 6]
    assert [sample.status for sample in response.samples[1:3]] == ["finished", "finished"]
    for sample in response.samples:
        assert (sample.status == "cancelled") == (sample.ended_at is None)
        assert sample.status != "cancelled" or (sample.text, sample.segments) == ("", None)


async def test_a_user_gets_the_first_that_passes_and_the_log_has_the_rest_as_called_off(
    tmp_path: Path, make_house: MakeHouse
) -> None:
    programs = {"hangs": python(HANGS, limits=limits(seconds=600)), "passes": python("print(ask('ab'))")}
    async with (
        house(tmp_path / "logs") as fleet,
        scorer(fleet.bus) as (_, url),
        make_house(programs, of_fleet=fleet.bus, runner_scorer_url=url) as running,
    ):
        for subscription in running.worker.subscriptions():
            await fleet.bus.consume(subscription.queue, subscription.handler, prefetch=8)
        dealt = ("hangs", "passes", "hangs")
        await fleet.submit(Task(task_id="t1", input="x", samples=3, programs=dealt, **FIRST))
        (result,) = await fleet.results()
        logged = fleet.logged()
        assert marked(MARK) == []

    assert (result.status, result.response, result.sample, result.score) == ("ok", "ab", 1, 1.0)
    assert (result.partial, result.reason) == (None, None)
    assert [(line.program, line.sample_status, line.score, line.score_status) for line in logged] == [
        ("hangs", "cancelled", None, "cancelled"),
        ("passes", "finished", 1.0, "ok"),
        ("hangs", "cancelled", None, "cancelled"),
    ]
    assert result_of(logged) == result
    assert logged[0].arm.experiment_id is None


async def test_none_is_called_off_where_nothing_passes_or_nobody_says_so_and_other_tasks_ask_nobody(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    three = Sampling(n=3, max_tokens=200)
    async with scorer() as (strategy, url), make_house({"says": python(SAY)}, runner_scorer_url=url) as house:
        failing = await house.answered(make_work(sampling=three, select="first-passing", reference="another"))
        asked = len(strategy.requests)
        best = await house.answered(make_work("t-2", sampling=three, reference="ab"))
        assert len(strategy.requests) == asked <= 2, "the last to end has nothing to call off"
    async with make_house({"says": python(SAY)}, runner_scorer_url=url) as house:
        alone = await house.answered(make_work("t-3", sampling=three, **FIRST))

    for response in (failing, best, alone):
        assert [sample.status for sample in response.samples] == ["finished"] * 3
    assert {sample.ended_at for sample in best.samples} == {None}, "nobody looks at the time where it does not choose"


async def test_a_work_that_comes_again_starts_nothing_once_a_kept_rollout_passes(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    work = make_work(sampling=Sampling(n=3, max_tokens=200), **FIRST)
    async with scorer() as (_, url), make_house({"hangs": python(HANGS)}, runner_scorer_url=url) as house:
        passed = Sample(text="ab", status="finished", program="hangs", ended_at=datetime.now(UTC))
        KeptRollouts(house.worker._settings.runner_dir, 10**9).put(key_of(work), {1: passed})
        response = await house.answered(work)

    assert [sample.status for sample in response.samples] == ["cancelled", "finished", "cancelled"]
    assert response.samples[1] == passed


async def test_a_scorer_that_says_nothing_of_what_is_kept_costs_the_rest_no_more_than_a_tenth_of_its_time(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    now = datetime.now(UTC)
    work = make_work(
        sampling=Sampling(n=2, max_tokens=200), admitted_at=now, deadline=now + timedelta(seconds=20), **FIRST
    )
    async with scorer() as (strategy, url), make_house({"says": python(SAY)}, runner_scorer_url=url) as house:
        strategy.held.clear()
        kept = Sample(text="half", status="finished", program="says", ended_at=now)
        KeptRollouts(house.worker._settings.runner_dir, 10**9).put(key_of(work), {1: kept})
        response = await house.answered(work)

    assert [sample.status for sample in response.samples] == ["finished", "finished"]


async def test_a_wait_for_a_turn_ends_when_it_is_called_off_and_gives_no_place_away() -> None:
    slots, never, off = Slots(1), asyncio.Event(), asyncio.Event()

    async def take(called_off: asyncio.Event) -> bool:
        try:
            async with slots.of(0, 60, called_off):
                return True
        except NoTurn:
            return False

    async with slots.of(0, 60, never):
        waiting = [asyncio.create_task(take(off)), asyncio.create_task(take(never))]
        await until(lambda: slots.waiting == 2)
        off.set()
        assert await waiting[0] is False
        assert await take(off) is False
        assert slots.waiting == 1
    assert await waiting[1] is True
    assert await take(never) is True


async def test_a_group_is_not_kept_for_a_verdict_once_all_its_rollouts_have_ended(
    make_house: MakeHouse, make_work: MakeWork
) -> None:
    async with scorer() as (strategy, url), make_house({"says": python(SAY)}, runner_scorer_url=url) as house:
        strategy.held.clear()
        response = await house.answered(make_work(sampling=Sampling(n=2, max_tokens=200), **FIRST))

    assert [sample.status for sample in response.samples] == ["finished", "finished"]


async def test_what_a_rollout_took_is_shown_so_a_score_with_cost_in_it_can_pass(make_work: MakeWork) -> None:
    settings = ScorerSettings(scorer="verifier:exact and tokens:100")
    worker = ScorerWorker(settings, MemoryBus(fleet_topology(("small",))), build_strategy(settings))
    app = application("scorer", worker.routers(), settings, worker.trouble)
    work = make_work(select="first-passing", reference="ab", pass_score=0.7)
    runs = Budget()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        stop = EarlyStop(work, client, "http://localhost", lambda: 60.0)
        stop.begin(runs)
        for tokens, over in ((100, None), (10, ANOTHER_PASSED)):
            await stop.look_at(Sample(text="ab", status="finished", usage=Usage(calls=1, sampled_tokens=tokens)))
            assert runs.says == over


def test_the_order_in_which_rollouts_ended_is_kept_where_the_clock_is_set_back_or_the_work_comes_again() -> None:
    steady = [100.0]
    wall = datetime(2026, 3, 1, tzinfo=UTC)
    first = Moments(wall, seconds=lambda: steady[0])
    steady[0] += 5
    ended = first.now()
    again = Moments(wall - timedelta(days=1), [ended], seconds=lambda: steady[0])
    steady[0] += 1

    assert (ended - wall, again.now() - ended) == (timedelta(seconds=5), timedelta(seconds=1))
