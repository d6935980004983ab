"""The page of a fleet with a manager: jobs, agents and usage, at the orchestrator's address.

The fleet is in this process, and answers what the test says.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from ratchet.http.server.application import application
from tests.acceptance.browser import NARROW, WIDE, chromium, visiting
from tests.acceptance.page_faults import faults
from tests.services.manager.managed import Managed, managed
from tests.services.manager.test_agents import PROGRAM
from tests.services.manager.test_budgets import SMALL
from tests.services.orchestrator.house import House, house
from tests.serving import serving

pytestmark = pytest.mark.timeout(300)

VIEWS = ("jobs", "jobs/monday", "agents", "agents?agent=bot", "usage", "usage?by=agent")


class Behind:
    """The orchestrator and the manager behind a page, in a thread of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._ready: Future[str] = Future()
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.managed: Managed

    def start(self) -> str:
        self._thread.start()
        return self._ready.result(60)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        prices = self._folder / "prices.toml"
        prices.write_text(SMALL)
        async with (
            managed(self._folder / "manager", prices=prices) as self.managed,
            serving(self.managed.app) as url,
            house(self._folder / "logs", manager_url=url) as fleet,
            serving(application_of(fleet)) as origin,
        ):
            self._ready.set_result(origin)
            await self._end.wait()


def application_of(fleet: House) -> Any:
    orchestrator = fleet.orchestrator
    return application("orchestrator", orchestrator.routers(), fleet.settings, orchestrator.trouble)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[tuple[str, Behind]]:
    (tmp_path / "logs").mkdir()
    (tmp_path / "manager").mkdir()
    opened = Behind(tmp_path)
    origin = opened.start()
    yield origin, opened
    opened.stop()


async def fill(here: Managed) -> None:
    """Two agents, a job that is half done, and one that failed in part."""
    await here.post("/v1/agents", 201, json={"name": "bot", "program": PROGRAM, "kind": "evaluation"})
    await here.post("/v1/agents", 201, json={"name": "torn", "program": PROGRAM})
    broken = {"name": "torn", "revision": 1, "state": "broken", "reason": "'python9' is not to be found in its sandbox"}
    agents = [{"name": "bot", "revision": 1, "state": "ready"}, broken]
    await here.post("/v1/runner-reports", json={"runner": "runner-1", "agents": agents})
    await here.submit(10, job_id="monday", priority=7, budget="100")
    await here.submit(4, job_id="tuesday", agent_id="bot")
    await here.released(14)
    for n in range(5):
        here.fleet.answer(f"monday/{n}", usage={"prompt_tokens": 40, "sampled_tokens": 4})
    here.fleet.answer("monday/5", status="failed", reason="the prompt is too long", response=None)
    here.fleet.answer("tuesday/0", score=0.75)
    await here.wait_for("monday", ok=5, failed=1)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "on a phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_can_be_read(
    browser: Browser, behind: tuple[str, Behind], size: tuple[int, int], theme: str, tmp_path: Path
) -> None:
    origin, fleet = behind
    with visiting(browser, origin, size=size, theme=theme) as visit:
        visit.go("jobs")
        visit.wait_for("No job yet")
        fleet.run(fill(fleet.managed))
        for view in VIEWS:
            visit.go(view)
            assert faults(visit.page) == [], view
            visit.page.screenshot(path=tmp_path / f"{view.partition('?')[0].replace('/', '-')}.png")
        assert visit.complaints() == []


def test_a_job_is_followed_paused_and_let_go_on(browser: Browser, behind: tuple[str, Behind]) -> None:
    origin, fleet = behind
    with visiting(browser, origin) as visit:
        fleet.run(fill(fleet.managed))
        visit.go("overview")
        visit.page.keyboard.press("g")
        visit.page.keyboard.press("j")
        visit.page.get_by_role("link", name="monday").click()
        visit.wait_for("6 of 10 ended")
        visit.wait_for("the prompt is too long")

        visit.page.get_by_role("button", name="Pause").click()
        visit.page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        visit.wait_for("somebody paused it")
        visit.page.get_by_role("button", name="Resume").click()
        visit.page.get_by_role("dialog").get_by_role("button", name="Resume").click()

        # what ends meanwhile shows by itself
        for n in range(6, 10):
            fleet.run(answer(fleet.managed, f"monday/{n}"))
        visit.wait_for("10 of 10 ended")
        assert visit.complaints() == []


async def answer(here: Managed, task_id: str) -> None:
    here.fleet.answer(task_id)


def test_an_agent_says_why_it_is_broken_and_is_removed(browser: Browser, behind: tuple[str, Behind]) -> None:
    origin, fleet = behind
    with visiting(browser, origin) as visit:
        fleet.run(fill(fleet.managed))
        visit.go("agents")
        visit.wait_for("'python9' is not to be found")
        visit.page.get_by_role("button", name="Remove torn").click()
        visit.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(visit.page.get_by_role("button", name="Remove torn")).to_have_count(0)
        assert fleet.run(fleet.managed.get("/v1/agents/torn"))["state"] == "retired"


def test_a_fleet_without_a_manager_has_none_of_these_views(browser: Browser, tmp_path: Path) -> None:
    ready: Future[str] = Future()
    end = threading.Event()

    async def serve() -> None:
        async with house(tmp_path) as fleet, serving(application_of(fleet)) as origin:
            ready.set_result(origin)
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        with visiting(browser, ready.result(60)) as visit:
            visit.go("overview")
            assert "Jobs" not in visit.text("nav")
            visit.page.goto(f"{ready.result()}/#/jobs")
            visit.wait_for("no manager")
    finally:
        end.set()
        thread.join()
