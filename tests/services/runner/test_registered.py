"""Agents that are registered while a runner runs: their programs come and go, and none of them stops it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.topology import fleet_topology, work_queue
from schemas.messages.work import Work
from services.runner.registered import installers_environment
from services.runner.worker import RunnerWorker
from tests.memory_bus import MemoryBus
from tests.services.manager.managed import Managed, managed
from tests.services.runner.conftest import House, MakeHouse, python
from tests.serving import serving
from tests.waiting import until

SAY = "print('says', ask(sys.stdin.read()))"


def declaration_of(code: str, **given: Any) -> dict[str, Any]:
    return json.loads(python(code, **given).model_dump_json(exclude_defaults=True))  # type: ignore[no-any-return]


@pytest.fixture
def make_pair(make_house: MakeHouse, tmp_path: Path, passable: Path) -> Callable[[], Any]:
    """A manager with its API on a port, and a runner that has no other programs than those registered there."""

    @asynccontextmanager
    async def pair() -> AsyncIterator[tuple[Managed, House]]:
        async with managed(tmp_path / "manager") as manager:
            bus = MemoryBus(fleet_topology(("small",), manager=True))
            await bus.start()
            given = {"of_fleet": bus, "program_environments": passable / "environments"}
            async with serving(manager.app) as url, make_house({}, **given, manager_url=url) as house:
                yield manager, house

    return pair


async def register(manager: Managed, name: str, state: str = "ready", **program: Any) -> dict[str, Any]:
    await manager.post("/v1/agents", 201, json={"name": name, "program": program})
    return await agent_in_state(manager, name, state)


async def agent_in_state(manager: Managed, name: str, state: str) -> dict[str, Any]:
    async def there() -> dict[str, Any] | None:
        agent: dict[str, Any] = await manager.get(f"/v1/agents/{name}")
        return agent if agent["state"] == state else None

    found: dict[str, Any] = await until(there, f"agent {name} {state}")
    return found


async def test_an_agent_answers_that_came_while_the_runner_ran(
    make_pair: Callable[[], Any], make_work: Callable[..., Work]
) -> None:
    async with make_pair() as (manager, house):
        assert [one.queue for one in house.worker.subscriptions()] == [work_queue("small", registered=True)]
        await register(manager, "bot", **declaration_of(SAY))
        response = await house.answered(make_work("t-1", registered_agent="bot"))
        assert [(one.text, one.program) for one in response.samples] == [("says sort: ba", "bot")]

        # a change of the program is in the next answer
        await manager.api.patch("/v1/agents/bot", json={"program": declaration_of("print('another')")})
        await until(lambda: is_at(house.worker, "bot", 2))
        response = await house.answered(make_work("t-2", registered_agent="bot"))
        assert [one.text for one in response.samples] == ["another"]


def is_at(worker: RunnerWorker, name: str, revision: int) -> bool:
    assert worker._registered is not None
    known = worker._registered._known.get(name)
    return known is not None and (known.revision, known.state) == (revision, "ready")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ({"command": ["no-such-program"]}, "not to be found"),
        ({"command": ["sh"], "limits": {"memory_mb": 2**30}}, "MB (limits.memory_mb), and this runner has"),
        ({"command": ["sh"], "limits": {"cpus": 10_000}}, "cores (limits.cpus), and this runner has"),
        ({"command": ["sh"], "requirements": ["no-such-package-of-ratchet==99.1"]}, "no-such-package-of-ratchet"),
    ],
)
async def test_a_broken_program_says_why_and_stops_nothing(
    make_pair: Callable[[], Any], make_work: Callable[..., Work], program: dict[str, Any], says: str
) -> None:
    async with make_pair() as (manager, house):
        await register(manager, "good", **declaration_of(SAY))
        broken = await register(manager, "bad", "broken", **program)
        assert says in broken["reason"]

        # a task of it that came in spite of that is answered with the reason
        response = await house.answered(make_work("t-1", registered_agent="bad"))
        assert "registered agent 'bad' is broken here" in str(response.error)
        assert house.worker.trouble() is None
        response = await house.answered(make_work("t-2", registered_agent="good"))
        assert response.samples[0].text == "says sort: ba"


async def test_the_old_program_answers_what_came_before_a_broken_change(
    make_pair: Callable[[], Any], make_work: Callable[..., Work]
) -> None:
    async with make_pair() as (manager, house):
        await register(manager, "bot", **declaration_of(SAY))
        await manager.api.patch("/v1/agents/bot", json={"program": {"command": ["no-such-program"]}})
        await agent_in_state(manager, "bot", "broken")
        response = await house.answered(make_work("t-1", registered_agent="bot"))
        assert response.samples[0].text == "says sort: ba"


async def test_a_name_that_is_not_registered_holds_up_nothing(
    make_pair: Callable[[], Any], make_work: Callable[..., Work]
) -> None:
    async with make_pair() as (_, house):
        response = await house.answered(make_work("t-1", registered_agent="nobody"))
        assert "registered agent 'nobody' is not registered" in str(response.error)


async def test_another_agent_by_the_name_of_one_that_was_removed_has_its_own_program(
    make_pair: Callable[[], Any], make_work: Callable[..., Work]
) -> None:
    async with make_pair() as (manager, house):
        await register(manager, "bot", **declaration_of(SAY))
        await manager.api.delete("/v1/agents/bot")
        fetches = house.worker._registered.fetches
        await until(lambda: house.worker._registered.fetches > fetches + 1)
        response = await house.answered(make_work("t-1", registered_agent="bot"))
        assert response.samples[0].text == "says sort: ba", "what is under way is still answered"

        await register(manager, "bot", **declaration_of("print('another')"))
        response = await house.answered(make_work("t-2", registered_agent="bot"))
        assert response.samples[0].text == "another"


async def test_work_that_is_here_before_its_program_waits_for_it(
    make_pair: Callable[[], Any], make_work: Callable[..., Work]
) -> None:
    async with make_pair() as (manager, house):
        await manager.post("/v1/agents", 201, json={"name": "late", "program": declaration_of(SAY)})
        response = await house.answered(make_work("t-1", registered_agent="late"))
        assert response.samples[0].text == "says sort: ba"


def test_what_installs_for_strangers_gets_no_setting_of_the_fleet() -> None:
    given = {"PATH": "/usr/bin", "RATCHET_AMQP_URL": "amqp://secret@nowhere/", "https_proxy": "p", "AWS_SECRET": "s"}
    told = {"PATH": "/usr/bin", "https_proxy": "p", "HOME": "/tmp/x", "PIP_ONLY_BINARY": ":all:"}
    assert installers_environment(given, "/tmp/x") == told
