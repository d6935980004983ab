"""Two orchestrators as processes: one works, one waits; the one that waits takes over with all that is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ratchet.cli.fleet.local_broker import free_port
from ratchet.logs.reader import read_json
from tests.acceptance.fleet import ORCHESTRATOR, Fleet, Member
from tests.acceptance.foreign import peer

pytestmark = pytest.mark.broker

TAKE_OVER_S = 20.0


@pytest.fixture
def fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    """Its agent is the test, so that a task is open when the orchestrator dies."""
    return start_fleet(agents=("foreign",), foreign_agents=("foreign",))


@pytest.fixture
def standby(fleet: Fleet) -> Iterator[Member]:
    first, port = fleet[ORCHESTRATOR], free_port()
    environment = first.environment | {"RATCHET_ORCHESTRATOR_HTTP_PORT": str(port)}
    member = replace(first, port=port, environment=environment, log=fleet.folder / "standby.log", process=None)
    member.start()
    try:
        wait_until(lambda: "standby" in member.get("/readyz")[1], member)
        yield member
    finally:
        member.kill()


def wait_until(holds: Callable[[], bool], member: Member) -> None:
    deadline = time.monotonic() + TAKE_OVER_S
    while not holds():
        assert time.monotonic() < deadline, f"{member.get('/readyz')}\n{member.log_tail()}"
        time.sleep(0.05)


async def test_the_standby_answers_what_was_open_when_the_first_was_killed(fleet: Fleet, standby: Member) -> None:
    assert standby.get("/readyz")[0] == 503
    async with peer(fleet.amqp_url, fleet.namespace) as foreign:
        # given a task that the first admitted and nobody has answered
        await foreign.read_results()
        await foreign.submit("open", "before the kill")
        await foreign.at_rest("tasks")
        # when
        await asyncio.to_thread(fleet[ORCHESTRATOR].kill)
        await asyncio.to_thread(wait_until, lambda: standby.get("/readyz")[0] == 200, standby)
        # then
        await foreign.answer_work("foreign", lambda work: work["input"])
        await foreign.submit("new", "after the kill")
        answers = await asyncio.gather(foreign.result("open"), foreign.result("new"))
    assert [answer["response"] for answer in answers] == ["before the kill", "after the kill"]
    logged = [record.value for record in read_json(fleet.logs, "agent_interactions", dict)]
    assert sorted((line["arm"]["sequence"], line["task_id"]) for line in logged) == [(0, "open"), (1, "new")]
