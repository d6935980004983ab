"""Questions of programs on the web page: a banner on every view, and the questions with what to answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.browser import chromium, visiting
from tests.acceptance.page_faults import faults
from tests.acceptance.test_managers_page import application_of
from tests.services.orchestrator.approvals.test_approvals import ask, asking, lines, submitted
from tests.serving import serving

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@contextmanager
def fleet_that_asks(folder: Path, *questions: str) -> Iterator[str]:
    """The address of a fleet in a thread of its own, in which a rollout has asked these."""
    ready: Future[str] = Future()
    end = threading.Event()

    async def serve() -> None:
        async with asking(folder) as fleet, serving(application_of(fleet)) as origin:
            await submitted(fleet)
            for question in questions:
                await ask(fleet, question, options=("yes", "no"))
            ready.set_result(origin)
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield ready.result(60)
    finally:
        end.set()
        thread.join()


def test_a_banner_leads_to_the_questions_which_are_answered_there(browser: Browser, tmp_path: Path) -> None:
    with fleet_that_asks(tmp_path, "a", "b", "c") as origin, visiting(browser, origin) as visit:
        visit.go("overview")
        visit.page.get_by_role("link", name="3 questions wait for a person").click()
        asked = visit.page.get_by_role("region", name="Question of t1")
        expect(asked).to_have_count(3)
        assert faults(visit.page) == []

        asked.first.get_by_role("textbox").fill("at once")
        asked.first.get_by_role("button", name="yes").click()
        expect(asked).to_have_count(2)
        asked.first.get_by_role("button", name="Reject").click()
        expect(asked).to_have_count(1)
        expect(asked.get_by_role("button", name="Edit")).to_be_disabled()
        asked.get_by_role("textbox").fill("Ask again.")
        asked.get_by_role("button", name="Edit").click()
        expect(asked).to_have_count(0)
        expect(visit.page.locator(".banner")).to_have_count(0)
        assert visit.complaints() == []

    decided = [(one.decision, one.text) for one in lines(tmp_path) if one.state == "decided"]
    assert decided == [("approve", "yes"), ("reject", ""), ("edit", "Ask again.")]
