"""Two orchestrators as processes: one hangs, and the standby takes over with all that is known.

The first finds out when it goes on: what it had begun is then no more its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from ratchet.logs.index_check import disagreement
from ratchet.logs.names import task_index
from ratchet.logs.reader import read_json
from tests.acceptance.fleet import ORCHESTRATOR, Fleet, Member
from tests.acceptance.foreign import peer
from tests.private_broker import free_port
from tests.waiting import until, wait_until

pytestmark = pytest.mark.broker

TAKE_OVER_S = 60.0


@pytest.fixture
def fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    """Its agent is the test, so that a task is open when the orchestrator dies. A lease is shorter than the default."""
    return start_fleet(agents=("foreign",), foreign_agents=("foreign",), environment={"RATCHET_LEASE_S": "4"})


@pytest.fixture
def standby(fleet: Fleet) -> Iterator[Member]:
    first, port = fleet[ORCHESTRATOR], free_port()
    environment = first.environment | {"RATCHET_ORCHESTRATOR_HTTP_PORT": str(port)}
    member = replace(first, port=port, environment=environment, log=fleet.folder / "standby.log", process=None)
    member.start()
    try:
        wait_until(lambda: "standby" in member.get("/readyz")[1], "a standby", TAKE_OVER_S)
        yield member
    finally:
        member.kill()


async def ready(member: Member) -> None:
    await asyncio.to_thread(wait_until, lambda: member.get("/readyz")[0] == 200, f"{member.name} ready", TAKE_OVER_S)


async def test_a_leader_that_hangs_is_replaced_and_when_it_goes_on_it_writes_nothing_and_ends(
    fleet: Fleet, standby: Member
) -> None:
    hanging = fleet[ORCHESTRATOR]
    names = ["open", *(f"burst-{number}" for number in range(40)), "new"]
    async with peer(fleet.amqp_url, fleet.namespace) as foreign:
        # given one task in an agent's hands, and one that stops in the middle of admitting more
        await foreign.read_results()
        await foreign.submit("open", "open")
        await foreign.at_rest("tasks")
        for name in names[1:-1]:
            await foreign.submit(name, name)
        os.kill(hanging.pid, signal.SIGSTOP)
        await foreign.submit("new", "new")
        # when the standby serves, what the other one had in hand included
        await ready(standby)
        await foreign.answer_work("foreign", lambda work: work["input"])
        answers = [await foreign.result(name) for name in names]
        await foreign.at_rest("tasks", "rewards")
        kept = kept_in(fleet)
        # and the other one goes on
        os.kill(hanging.pid, signal.SIGCONT)
        await until(lambda: hanging.exit_code is not None, "the end of the superseded leader", TAKE_OVER_S)
    # then
    assert [answer["response"] for answer in answers] == names
    assert hanging.exit_code == 1
    assert "superseded" in hanging.log_tail()
    assert kept_in(fleet) == kept
    for log in ("assignments", "agent_interactions"):
        lines = [record.value for record in read_json(fleet.logs, log, dict)]
        assert sorted(line["task_id"] for line in lines) == sorted(names)
        epochs = [line["epoch"] for line in lines]
        assert epochs == sorted(epochs)
    assert disagreement(task_index(fleet.logs), fleet.logs) is None
    assert standby.get("/readyz")[0] == 200


def kept_in(fleet: Fleet) -> dict[str, int]:
    """Bytes of every log and of the registry's files, under whatever name."""
    files = [*fleet.logs.glob("*.jsonl*"), *(fleet.folder / "adapters").glob("*.json*")]
    return {file.name: file.stat().st_size for file in files if file.name != "quarantine.jsonl"}
