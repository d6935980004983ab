"""The web page in a headless Chromium, on real fleets: each view, live, by keyboard, with and without a token.

With RATCHET_PAGE_IMAGES=docs/images the documentation's pictures are made anew; else they go to a temporary folder.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pika
import pytest
from playwright.sync_api import Browser, Route, expect

from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.signatures import Signing
from ratchet.http.access.keys import KeyFolder
from ratchet.http.access.roles import Role
from ratchet.http.access.tokens import issue
from ratchet.runs.progress import ProgressFile
from ratchet.runs.store import RunStore
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.decision import DecisionDraft, Distrust, Move
from schemas.records.registry import AdapterEntry, EntryState
from tests.acceptance.browser import NARROW, WIDE, Visit, chromium, visiting
from tests.acceptance.fleet import ORCHESTRATOR, Fleet, Member
from tests.acceptance.foreign_trainer import foreign_trainer
from tests.acceptance.loops import BY_VERSION, loop_on
from tests.acceptance.many_tasks import write_tasks
from tests.acceptance.page_faults import faults
from tests.acceptance.page_images import take_pictures
from tests.private_broker import free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

VIEWS = (
    "overview",
    "tasks",
    "experiments",
    "adapters",
    "programs",
    "agreement",
    "evaluations",
    "training",
    "queues",
    "dead-letters",
)
MANY = 100_000
ADAPTERS, DRAWN = 10_000, 24
Size = tuple[int, int]
PAUSE_S = 0.1
"""The page reads once a second at most: an experiment of two hundred tasks is seen to move, on a busy machine too."""
READ = """path => performance.getEntriesByType("resource").filter((one) => one.name.includes(path))
    .reduce((sum, one) => sum + one.decodedBodySize, 0)"""
MOVES = 3
SLOW_MS = 2000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def fleet(start_fleet: Callable[..., Fleet]) -> Fleet:
    return start_fleet(environment=BY_VERSION)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get("RATCHET_PAGE_IMAGES")
    return Path(kept) if kept else tmp_path_factory.mktemp("images")


@pytest.fixture
def visit(browser: Browser, fleet: Fleet) -> Iterator[Visit]:
    with visiting(browser, origin(fleet)) as visit:
        yield visit
        assert visit.complaints() == []


def origin(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{fleet[ORCHESTRATOR].port}"


def ask(fleet: Fleet, task_id: str, text: str = "say it", wait_s: int = 20, **fields: Any) -> None:
    """A task, through the API; returns when it is answered."""
    body = json.dumps({"task_id": task_id, "input": text, "samples": 2} | fields).encode()
    request = urllib.request.Request(
        f"{origin(fleet)}/v1/tasks?wait_s={wait_s}", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=wait_s + 10) as answer:
        assert answer.status == 200, answer.read()


@contextmanager
def learning(fleet: Fleet, *, pause_s: float = 0.0) -> Iterator[threading.Event]:
    """Meanwhile users ask, a better adapter is trained and proves itself, and a bad one is thrown out.

    The users pause so long before each task, until the event is set.
    """
    hurry = threading.Event()

    def learn() -> None:
        loop, _, _ = loop_on(fleet, "page", pause=lambda: hurry.wait(pause_s))
        with foreign_trainer(fleet):
            loop.turn(1)
        loop.sabotage(2)

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        yield hurry
    finally:
        hurry.set()
        thread.join()


@pytest.fixture(scope="module")
def learned(fleet: Fleet) -> Fleet:
    """v1.0.1 is the primary, v1.0.2 was rolled back; whichever test comes first has that done."""
    if "v1.0.2" not in RegistryStore(fleet.folder / "adapters").read().agent("small").versions:
        with learning(fleet):
            pass
    return fleet


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "on a phone"])
def test_every_view_of_an_empty_fleet_can_be_read_at_both_widths(browser: Browser, fleet: Fleet, size: Size) -> None:
    with visiting(browser, origin(fleet), size=size) as visit:
        for view in VIEWS:
            visit.go(view)
            assert faults(visit.page) == [], view
            assert visit.text().strip(), view
        assert visit.complaints() == []


def test_an_empty_fleet_says_what_to_type(visit: Visit, images: Path) -> None:
    told = {
        "overview": "ratchet submit",
        "tasks": "ratchet submit",
        "experiments": "ratchet train",
        "adapters": "ratchet train",
        "programs": "ratchet up --programs",
        "agreement": "ratchet label",
        "training": "ratchet train",
        "dead-letters": "ratchet dead-letters list",
    }
    for view, command in told.items():
        visit.go(view)
        visit.wait_for(command)
        assert faults(visit.page) == [], view
    visit.go()
    visit.page.screenshot(path=images / "page-empty.png")


def test_a_fleet_learns_before_one_s_eyes(visit: Visit, fleet: Fleet) -> None:
    page = visit.page
    visit.go("experiments")
    visit.wait_for("No experiment has run yet")

    with learning(fleet, pause_s=PAUSE_S) as hurry:
        page.locator("td a").first.click(timeout=60_000)
        units = page.locator(".tile", has_text="units finished").locator("dd")
        seen = {units.inner_text()}
        deadline = time.monotonic() + 60
        while "promoted" not in visit.text(".heading") and time.monotonic() < deadline:
            seen.add(units.inner_text())
            if len(seen) > MOVES:
                hurry.set()
            page.wait_for_timeout(100)
        visit.wait_for("The candidate is proved better")

    assert len(seen) > MOVES, "the figures moved while one looked"
    assert page.locator(".chart canvas").count() == 2
    assert visit.loads == 1, "without a reload"


def test_the_documentation_s_pictures_can_be_taken(browser: Browser, learned: Fleet, images: Path) -> None:
    names = take_pictures(browser, origin(learned), images, watched_ms=100)

    assert {(images / f"{name}.png").stat().st_size > 10_000 for name in names} == {True}
    assert len(names) == len(set(names)) == 7


def test_the_search_for_faults_finds_them(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("<p style='color:#aaa;background:#fff'>pale</p><button></button><img src='data:,'><table></table>")

    assert [fault.split(":")[0] for fault in faults(page)] == [
        'contrast 2.32 of p. "pale"',
        "no name",
        "no alt",
        "a table without headers",
        "0 main headings",
        "no language or no title",
    ]
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_can_be_read_by_everyone(browser: Browser, learned: Fleet, theme: str) -> None:
    ask(learned, f"long-{theme}", "a question that takes many words, " * 60)
    for size in (WIDE, NARROW):
        with visiting(browser, origin(learned), size=size, theme=theme) as visit:
            for view in (*VIEWS, "adapters/small/v1.0.1", "training/small/v1.0.1"):
                visit.go(view)
                assert faults(visit.page) == [], (view, size)
            visit.go("experiments")
            visit.page.locator("td a").first.click()
            visit.wait_for("Both arms")
            assert faults(visit.page) == [], (theme, size)
            assert visit.complaints() == []


def test_the_overview_has_one_table_of_an_agent_s_versions(visit: Visit, learned: Fleet) -> None:
    ask(learned, "for the overview")
    visit.go()

    expect(visit.page.get_by_role("table", name="Scores by version")).to_have_count(1)
    expect(visit.page.get_by_role("row").filter(has_text="primary")).to_have_count(1)


def test_a_new_task_shows_up_by_itself_and_can_be_followed(visit: Visit, learned: Fleet) -> None:
    visit.go("tasks")

    ask(learned, "seen/live 1", "say hello")
    visit.page.get_by_role("link", name="seen/live 1").click()

    visit.wait_for("Its way")
    text = visit.text()
    for words in ("say hello", "waited for an agent", "answered", "scored", "settled", "Samples", "sample 0", "chosen"):
        assert words in text, words
    assert visit.loads == 1
    assert visit.page.get_by_role("heading", name="Task").count() == 1


def test_the_fleet_s_own_tasks_are_listed_where_they_are_asked_for(visit: Visit, learned: Fleet) -> None:
    ask(learned, "golden/small/1", "as the gate asks")
    ask(learned, "most/1", "what do most say", select="majority")
    visit.go("tasks")
    expect(visit.page.get_by_role("link", name="most/1")).to_be_visible()
    expect(visit.page.get_by_role("link", name="golden/")).to_have_count(0)

    visit.page.get_by_label("Asked by").select_option("all")

    expect(visit.page.get_by_role("link", name="golden/").first).to_be_visible()
    assert faults(visit.page) == []
    visit.go("tasks/most%2F1")
    visit.wait_for("the user got what most said")


def test_what_is_told_faster_than_it_can_be_read_is_shown_all_the_same(visit: Visit, learned: Fleet) -> None:
    slow = {"offline": False, "latency": SLOW_MS, "downloadThroughput": -1, "uploadThroughput": -1}
    visit.go()
    visit.page.context.new_cdp_session(visit.page).send("Network.emulateNetworkConditions", slow)
    going_on = threading.Event()

    def ask_on() -> None:
        while not going_on.wait(0.2):
            ask(learned, f"again {time.monotonic()}")

    users = threading.Thread(target=ask_on)
    users.start()
    try:
        visit.page.keyboard.press("g")
        visit.page.keyboard.press("t")
        visit.page.locator("td a").first.wait_for()
    finally:
        going_on.set()
        users.join()


def test_adapters_are_rolled_back_and_promoted_with_a_reason(visit: Visit, learned: Fleet) -> None:
    page = visit.page
    visit.go("adapters")
    lineage = page.get_by_role("group", name="Lineage of small")
    expect(lineage.get_by_role("link")).to_have_count(3)
    expect(lineage.get_by_role("link", name="v1.0.2, rolled back")).to_be_visible()

    page.get_by_role("button", name="Roll back").click()
    dialog = page.get_by_role("dialog", name="Roll back v1.0.1?")
    expect(dialog.get_by_role("button", name="Roll back")).to_be_disabled()
    dialog.get_by_label("Reason").fill("it greets too loudly")
    dialog.get_by_role("button", name="Roll back").click()
    expect(dialog).to_have_count(0)
    expect(lineage.get_by_role("link", name="v1.0.0, stable, primary")).to_be_visible()
    visit.wait_for("it greets too loudly")

    page.get_by_role("button", name="Promote").click()
    dialog = page.get_by_role("dialog", name="Promote v1.0.1?")
    dialog.get_by_label("Reason").fill("they like it loud")
    dialog.get_by_role("button", name="Promote").click()
    expect(dialog).to_have_count(0)
    expect(lineage.get_by_role("link", name="v1.0.1, stable, primary")).to_be_visible()

    decisions = [decision for decision, _ in RegistryStore(learned.folder / "adapters").ledger.read()]
    assert [(one.move.kind, one.reason) for one in decisions if one.who == "operator:local"] == [
        ("roll_back", "it greets too loudly"),
        ("promote", "they like it loud"),
    ]
    assert visit.loads == 1


def test_what_the_registry_forbids_is_said_in_the_dialog(visit: Visit, learned: Fleet) -> None:
    page = visit.page
    visit.go("adapters")
    page.get_by_role("button", name="Freeze").click()
    page.get_by_label("Reason").fill("the auditors are here")
    page.get_by_role("dialog").get_by_role("button", name="Freeze").click()
    visit.wait_for("the auditors are here")

    visit.go("adapters/small/v1.0.2")
    page.get_by_role("button", name="Promote").click()
    page.get_by_label("Reason").fill("why not")
    page.get_by_role("dialog").get_by_role("button", name="Promote").click()

    visit.wait_for("frozen", "dialog [role=alert]")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Unfreeze").click()
    page.get_by_label("Reason").fill("they have left")
    page.get_by_role("dialog").get_by_role("button", name="Unfreeze").click()
    expect(page.get_by_role("button", name="Freeze", exact=True)).to_be_visible()
    visit.console = [line for line in visit.console if "409" not in line]


def test_a_scorer_that_drifted_is_told_until_it_is_taken_as_the_measure(visit: Visit, learned: Fleet) -> None:
    page, moved = visit.page, "the scorer drifted: the same 16 answers score -0.210 on average (anchors)"
    visit.go("adapters")
    expect(page.locator(".banner")).to_have_count(0)

    decided(learned, Distrust(), moved)

    banner = page.locator(".banner.bad[role=status]")
    expect(banner).to_contain_text("The scorer has drifted")
    expect(banner).to_contain_text(moved)
    assert faults(page) == []
    banner.get_by_role("button", name="Take as the measure").click()
    dialog = page.get_by_role("dialog", name="Take the scorer of small as it is now?")
    dialog.get_by_label("Reason").fill("its rubric was mended")
    dialog.get_by_role("button", name="Take as the measure").click()
    expect(page.locator(".banner")).to_have_count(0)
    store = RegistryStore(learned.folder / "adapters")
    assert store.read().agent("small").distrusted is None
    assert [one.reason for one, _ in store.ledger.read()][-1] == "its rubric was mended"
    assert visit.loads == 1


def decided(fleet: Fleet, move: Move, reason: str) -> None:
    """As the orchestrator does, beside it."""
    store = RegistryStore(fleet.folder / "adapters", Signing(fleet.folder / "decision-keys", fleet.folder / "logs"))
    by_it = DecisionDraft(agent_id="small", move=move, who="orchestrator", at=datetime.now(UTC), reason=reason)
    store.update(lambda _: by_it)


def test_a_training_s_curves_are_drawn(visit: Visit, learned: Fleet) -> None:
    visit.go("training/small/v1.0.1")

    visit.wait_for("How v1.0.1 was made")
    assert visit.page.locator(".chart canvas").count() == 2
    assert visit.page.get_by_role("img", name="Reward: from 0.4 to 0.7").count() == 1
    assert "64 groups" in visit.text()
    visit.page.locator("summary", has_text="Figures").first.click()
    assert "0.5" in visit.text("details[open]")


def test_a_refused_training_is_seen_with_its_reason(visit: Visit, learned: Fleet) -> None:
    page, few = visit.page, "too few groups to learn from: 3, at least 8 are needed"
    visit.go("training")
    visit.wait_for("A training made v1.0.1")

    with foreign_trainer(learned, refuses=few), pika.BlockingConnection(pika.URLParameters(learned.amqp_url)) as broker:
        request = TrainRequest(request_id="by/hand 1", agent_id="small")
        broker.channel().basic_publish("", learned.namespace + "training", request.encode())
        row = page.locator("tbody tr", has_text="by/hand 1")
        expect(row).to_contain_text("refused")
        expect(row).to_contain_text("Too few groups to learn from: 3, at least 8 are needed.")
    row.get_by_role("link").first.press("Enter")

    visit.wait_for("A training was refused")
    expect(page.locator(".card .trouble")).to_have_text("Too few groups to learn from: 3, at least 8 are needed.")
    assert faults(page) == []
    assert visit.loads == 1


def test_a_training_is_watched_while_it_goes(visit: Visit, learned: Fleet) -> None:
    page = visit.page
    visit.go("training")
    job = RunStore(learned.folder / "adapters").record(TrainRequest(request_id="tonight", agent_id="small"))
    visit.wait_for("A training waits for a trainer")

    job.begin("")
    trainer = ProgressFile(job.progress, lambda: datetime.now(UTC))
    trainer.record({"stage": "selected", "counts": {"groups": 64, "groups.zero_spread": 7}})
    visit.wait_for("A training is under way")
    for step in range(1, 4):
        trainer.record({"stage": "training", "step": step, "steps": 8, "reward": 0.3 + step / 10})
    trainer.write()
    visit.wait_for("step 3 of 8")
    page.get_by_role("img", name="Reward: from 0.4 to 0.6").wait_for()
    listed = page.get_by_role("table", name="Training runs").locator("tbody tr")
    expect(listed.first).to_contain_text("tonight")
    assert "groups: zero spread" in visit.text()
    assert faults(page) == []

    for step in range(4, 6):
        trainer.record({"stage": "training", "step": step, "steps": 8, "reward": 0.3 + step / 10})
    trainer.write()
    visit.wait_for("step 5 of 8")
    page.get_by_role("img", name="Reward: from 0.4 to 0.8").wait_for()
    job.outcome = AdapterTrained(request_id="tonight", agent_id="small", status="failed", reason="out of memory")

    expect(listed.filter(has_text="tonight")).to_contain_text("Out of memory.")
    assert visit.loads == 1


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "on a phone"])
def test_dead_letters_are_read_sent_back_and_dismissed(browser: Browser, learned: Fleet, size: Size) -> None:
    with visiting(browser, origin(learned), size=size) as visit:
        move_dead_letters(visit, learned)
        assert faults(visit.page) == visit.complaints() == []


def move_dead_letters(visit: Visit, learned: Fleet) -> None:
    page = visit.page
    visit.go("dead-letters")
    with pika.BlockingConnection(pika.URLParameters(learned.amqp_url)) as connection:
        connection.channel().basic_publish("", learned.namespace + "tasks", b'{"task_id": "no-input"}')

    page.locator("td a").first.click()
    dialog = page.get_by_role("dialog")
    visit.wait_for('{"task_id": "no-input"}', "dialog")
    assert "input" in dialog.inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile("Requeue all of .*tasks")).click()
    page.get_by_role("dialog").get_by_role("button", name="Requeue").click()
    visit.wait_for("1 letter sent back")

    page.locator("tbody").get_by_role("button", name="Dismiss").click(timeout=30_000)
    assert faults(page) == []
    page.get_by_role("dialog").get_by_label("Reason").fill("a sender's test")
    page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()

    visit.wait_for("1 letter dismissed")
    visit.wait_for("No dead letters")


def test_more_dead_letters_than_a_page_holds_are_a_click_away(visit: Visit, learned: Fleet) -> None:
    queue = learned.namespace + "dead-letters"
    with pika.BlockingConnection(pika.URLParameters(learned.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_purge(queue)
        channel.confirm_delivery()
        for number in range(105):
            channel.basic_publish("", queue, b"letter %d" % number)
        visit.go("dead-letters")
        visit.wait_for("100 of 105")

        visit.page.get_by_role("link", name="More").click()

        visit.wait_for("5 of 105")
        expect(visit.page.locator("tbody tr")).to_have_count(5)
        visit.page.get_by_role("link", name="First").click()
        expect(visit.page.locator("tbody tr")).to_have_count(100)
        channel.queue_purge(queue)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "on a phone"])
def test_it_can_be_used_by_keyboard_alone(browser: Browser, learned: Fleet, size: Size) -> None:
    with visiting(browser, origin(learned), size=size) as visit:
        use_by_keyboard(visit, learned)
        assert visit.complaints() == []


def use_by_keyboard(visit: Visit, learned: Fleet) -> None:
    ask(learned, "by keyboard")
    page = visit.page
    visit.go()

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"

    page.keyboard.press("g")
    page.keyboard.press("t")
    visit.wait_for("by keyboard")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr') !== null")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    visit.wait_for("Its way")

    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet).to_be_visible()
    for _ in range(6):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)

    page.keyboard.press("/")
    page.wait_for_selector("[data-key=search]:focus")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Enter")
    visit.wait_for("Its way")


def test_a_page_of_which_a_part_did_not_come_is_loaded_again(visit: Visit, learned: Fleet) -> None:
    gone = f"{origin(learned)}/page/*/views/tasks.js"
    visit.page.route(gone, lambda route: route.abort(), times=1)

    visit.go()

    visit.wait_for("Latest decisions")
    visit.page.route(gone, lambda route: route.abort())
    visit.page.reload()
    visit.page.get_by_text("A part of this page could not be loaded.").wait_for()
    visit.console = [line for line in visit.console if "ERR_FAILED" not in line]


def answering(said: object) -> Callable[[Route], None]:
    return lambda route: route.fulfill(json=said)


def test_programs_are_compared_and_their_rollouts_seen_at_work(visit: Visit, fleet: Fleet) -> None:
    """The API's answers are played here; that it gives them is tested where the runner is."""
    running = {"task_id": "t-7", "agent_id": "small", "program": "aider", "sample": 1, "state": "running", "calls": 3}
    running |= {
        "started_at": "2031-05-01T12:00:00Z",
        "seconds": 4.5,
        "sampled_tokens": 420,
        "says": None,
        "runner": "a",
    }
    ended = running | {"sample": 0, "state": "limit", "says": "it called the model more than 256 times"}
    means = {"calls": 4.0, "sampled_tokens": 120.0, "prompt_tokens": 900.0, "seconds": 2.5}
    score = {"tasks": 30, "mean": 0.8, "low": 0.7, "high": 0.9}
    aider = {"agent_id": "small", "program": "aider", "rollouts": 60, "scored": 58, "score": score, **means}
    aider |= {"ended": {"finished": 54, "limit": 6}, "breaks": {"rewritten": 12}}
    told = {
        "programs": {"items": [aider], "since": "2031-05-01T12:00:00Z", "lines": 60},
        "rollouts": {"items": [ended, running], "runners": [{"runner": "a", "at_once": 8, "running": 1, "waiting": 2}]},
    }
    for name, said in told.items():
        visit.page.route(f"{origin(fleet)}/v1/{name}*", answering(said))

    visit.go("programs")

    visit.wait_for("1 of 8 at once run, 2 wait")
    for text in ("0.800 ± 0.100", "90 % finished, 10 % limit", "12 rewritten", "more than 256 times", "420"):
        assert text in visit.text(), text
    assert faults(visit.page) == []


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "on a phone"])
def test_programs_are_tried_promoted_and_rolled_back_with_a_reason(browser: Browser, fleet: Fleet, size: Size) -> None:
    """The page only asks the API, whose tests say what follows."""
    figures = {"agent_id": "small", "program": "old", "rollouts": 1, "scored": 0, "score": None, "calls": None}
    figures |= {"sampled_tokens": None, "seconds": None, "ended": {"finished": 1}, "breaks": {}, "scorer": None}
    state = {"name": "old", "state": "stable", "sentence": "It answers by default.", "aliases": ["primary"]}
    stands: dict[str, Any] = {"agent_id": "small", "primary": "old", "candidate": None, "asked": None, "previous": None}
    stands |= {"experiment": None, "items": [state], "runs": {"old": "a" * 64, "new": "b" * 64}}
    sent: list[tuple[str, Any]] = []

    def moved(route: Route) -> None:
        if route.request.method == "POST":
            kind = route.request.url.rpartition("/")[2]
            sent.append((kind, route.request.post_data_json))
            stands["asked"] = "new" if kind == "try" else None
        route.fulfill(json=stands)

    with visiting(browser, origin(fleet), size=size) as visit:
        page = visit.page
        page.route(f"{visit.origin}/v1/programs", answering({"items": [figures], "since": None, "lines": 1}))
        page.route(f"{visit.origin}/v1/programs/small**", moved)
        visit.go("programs")
        row = page.get_by_role("table", name="Which program of small answers").get_by_role("row")
        new, old = row.filter(has_text="new"), row.filter(has_text="old")
        expect(old.get_by_role("button")).to_have_text(["Roll back"])
        expect(new.get_by_role("button")).to_have_text(["Try", "Promote"])
        assert faults(page) == []

        for button, leads_to in (
            ("Try", ["Promote", "Roll back"]),
            ("Roll back", ["Try", "Promote"]),
            ("Promote", None),
        ):
            new.get_by_role("button", name=button).click()
            dialog = page.get_by_role("dialog", name=f"{button} new?")
            expect(dialog.get_by_role("button", name=button)).to_be_disabled()
            dialog.get_by_label("Reason").fill(f"for {button}")
            dialog.get_by_role("button", name=button).click()
            expect(dialog).to_have_count(0)
            if leads_to:
                expect(new.get_by_role("button")).to_have_text(leads_to)
        assert visit.complaints() == []

    assert sent == [
        (kind, {"program": "new", "reason": f"for {button}"})
        for kind, button in (("try", "Try"), ("rollback", "Roll back"), ("promote", "Promote"))
    ]


@pytest.mark.parametrize("size", [(768, 1024), NARROW], ids=["tablet", "on a phone"])
def test_the_menu_is_behind_a_button_where_it_has_no_room(browser: Browser, fleet: Fleet, size: Size) -> None:
    with visiting(browser, origin(fleet), size=size) as visit:
        visit.go()
        views, button = (
            visit.page.get_by_role("navigation", name="Views"),
            visit.page.get_by_role("button", name="Menu"),
        )
        expect(views).to_have_count(0)

        button.click()
        expect(views.get_by_role("link")).to_have_count(len(VIEWS))
        assert faults(visit.page) == []
        views.get_by_role("link", name="Queues").click()

        visit.wait_for("The way of a task")
        expect(views).to_have_count(0)
        assert visit.complaints() == []


def test_colours_say_what_is_good_and_what_is_bad(visit: Visit, fleet: Fleet) -> None:
    queue = {"retry_after_s": None, "messages": 7, "max_length": 9, "consuming": 0, "about": "", "message": None}
    queue |= {"producers": ["orchestrator"], "consumers": ["applications"]}
    named = [queue | {"name": name} for name in ("results", "responses")]
    visit.page.route(f"{origin(fleet)}/v1/queues", answering({"at": "2031-05-01T12:00:00Z", "items": named}))
    ask(fleet, "no reference", "unscorable")

    visit.go("queues")
    row = visit.page.get_by_role("row")
    expect(row.filter(has_text="responses").locator(".bad")).to_have_text("none")
    expect(row.filter(has_text="results").locator(".bad")).to_have_count(0)

    visit.page.route(f"{origin(fleet)}/v1/tasks/no%20reference", without_scores)
    visit.go("tasks/no%20reference")
    expect(visit.page.locator(".sample.chosen .mark")).to_have_css("color", rgb_of(visit, "--warn"))


def without_scores(route: Route) -> None:
    """The task as it is, its samples not scored, and the turns of a conversation beside the first of them."""
    told: dict[str, Any] = route.fetch().json()
    turn = {"role": "tool", "content": "a long result", "tokens": None, "prompt_tokens": None, "seconds": None}
    turn |= {"reasoning": None, "tool_calls": None}
    segment = {"broke": None, "prompt_tokens": 3, "sampled_tokens": 2, "given_tokens": 1, "turns": [turn]}
    for sample in told["samples"]:
        sample |= {"score": None, "status": "unscorable", "segments": [segment]}
    route.fulfill(json=told)


def rgb_of(visit: Visit, colour: str) -> str:
    drawn = f"Object.assign(document.createElement('i'), {{ style: 'color: var({colour})' }})"
    told: str = visit.page.evaluate(f"getComputedStyle(document.body.appendChild({drawn})).color")
    return told


def test_the_turns_of_a_conversation_are_closed_until_one_opens_them(visit: Visit, fleet: Fleet) -> None:
    ask(fleet, "in turns")
    visit.page.route(f"{origin(fleet)}/v1/tasks/in%20turns", without_scores)
    visit.go("tasks/in%20turns")

    visit.page.get_by_text("Turn by turn, 1 segment").first.click()
    turn = visit.page.get_by_text("a long result").first
    expect(turn).not_to_be_visible()
    visit.page.locator("details.turn summary").first.click()

    expect(turn).to_be_visible()


def test_an_agent_that_left_the_fleet_is_asked_for_nothing(visit: Visit, fleet: Fleet) -> None:
    figures = {"agent_id": "gone", "program": "old", "rollouts": 1, "scored": 0, "score": None, "calls": None}
    figures |= {"sampled_tokens": None, "seconds": None, "ended": {"finished": 1}, "breaks": {}, "scorer": None}
    visit.page.route(f"{origin(fleet)}/v1/programs", answering({"items": [figures], "since": None, "lines": 1}))

    visit.go("programs")

    visit.page.get_by_role("table", name="Programs of gone").wait_for()  # what is complained of, `visit` looks at


def test_the_theme_is_switched_and_kept(visit: Visit) -> None:
    visit.go()
    before = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")

    visit.page.get_by_role("button", name="Switch to dark").click()

    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    visit.page.reload()
    assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.fixture(scope="module")
def guarded(amqp_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """An orchestrator that asks for tokens and has answered very many tasks; nobody else of its fleet is there."""
    folder = tmp_path_factory.mktemp("guarded")
    KeyFolder(folder / "keys").make()
    fleet = Fleet(
        folder,
        amqp_url,
        namespace=f"p{free_port()}.",
        environment={"RATCHET_API_PUBLIC_KEYS": str(folder / "keys" / "jwks.json")},
        forked=True,
    )
    write_tasks(fleet.logs, MANY)
    fleet[ORCHESTRATOR].start()
    try:
        fleet[ORCHESTRATOR].wait_until_ready()
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def crowded(amqp_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """An orchestrator whose agent has had very many adapters; it alone is at work."""
    fleet = Fleet(tmp_path_factory.mktemp("crowded"), amqp_url, namespace=f"p{free_port()}.", forked=True)
    fleet[ORCHESTRATOR].start()
    try:
        fleet[ORCHESTRATOR].wait_until_ready()
        store = RegistryStore(fleet.folder / "adapters")
        registry = store.read()
        small = registry.agent("small")
        states = (EntryState.ARCHIVED, EntryState.REJECTED, EntryState.SUPERSEDED)
        versions = small.versions | {
            f"v1.0.{n}": AdapterEntry(version=f"v1.0.{n}", state=states[n % 3], parent=f"v1.0.{n - 1 - n % 7 % n}")
            for n in range(1, ADAPTERS + 1)
        }
        agents = {**registry.agents, "small": small.model_copy(update={"versions": versions})}
        store.path.write_bytes(registry.model_copy(update={"agents": agents}).encode())
        yield fleet
    finally:
        fleet.stop()


def token(fleet: Fleet, role: Role, ttl_s: int = 600) -> str:
    key = KeyFolder(fleet.folder / "keys").signing_key()
    return issue(key, "ann", role, ttl_s, issuer="ratchet", audience="ratchet")[0]


@pytest.fixture
def guest(browser: Browser, guarded: Fleet) -> Iterator[Visit]:
    """Nothing else may be complained of than what was refused for want of a token."""
    with visiting(browser, origin(guarded)) as visit:
        yield visit
        assert [line for line in visit.complaints() if " 401 " not in line] == []


def enter(visit: Visit, text: str) -> None:
    visit.page.get_by_role("textbox", name="Token").fill(text)
    visit.page.get_by_role("button", name="Go on").click()


def test_it_asks_for_a_token_and_a_viewer_changes_nothing(guest: Visit, guarded: Fleet) -> None:
    guest.page.goto(f"{guest.origin}/#/adapters")
    guest.wait_for("This fleet's API asks for a token.")
    assert faults(guest.page) == []

    enter(guest, "no.such.token")
    guest.wait_for("The token was refused.")
    enter(guest, token(guarded, Role.VIEWER))

    guest.page.get_by_role("group", name="Lineage of small").wait_for()
    assert "ann · viewer" in guest.text("header.side")
    assert "token ends in" in guest.text("header.side")
    assert guest.page.get_by_role("button", name="Freeze").count() == 0
    assert guest.page.evaluate("Object.keys(localStorage)") == []
    expect(guest.page.locator(".live")).to_have_text("Live")

    guest.page.get_by_role("button", name="Sign out").click()
    guest.wait_for("This fleet's API asks for a token.")


def test_a_submitter_is_told_what_is_not_theirs(guest: Visit, guarded: Fleet) -> None:
    guest.page.goto(guest.origin)
    enter(guest, token(guarded, Role.SUBMITTER))

    guest.wait_for("Your role does not allow this")
    guest.console = [line for line in guest.console if " 403 " not in line]


def test_a_hundred_thousand_tasks_are_as_quick_as_none(guest: Visit, guarded: Fleet) -> None:
    page = guest.page
    page.goto(f"{guest.origin}/#/tasks")
    enter(guest, token(guarded, Role.OPERATOR))
    guest.wait_for("100,000 known")
    guest.wait_for("task-0099999")

    began = time.monotonic()
    for number in range(1, 11):
        page.keyboard.press("n")
        guest.wait_for(f"task-{MANY - 1 - 50 * number:07d}")
    took = time.monotonic() - began

    assert took < 30, f"ten pages took {took:.1f} s"
    assert page.locator("tbody tr").count() == 50
    page.keyboard.press("p")
    guest.wait_for(f"task-{MANY - 1 - 50 * 9:07d}")
    page.get_by_label("Task id").fill("task-0000042")
    page.keyboard.press("Enter")
    guest.wait_for("Its way")
    assert page.evaluate("performance.memory.usedJSHeapSize") < 50e6


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "on a phone"])
def test_ten_thousand_adapters_are_folded_and_any_is_found(browser: Browser, crowded: Fleet, size: Size) -> None:
    with visiting(browser, origin(crowded), size=size) as visit:
        page = visit.page
        began = time.monotonic()
        visit.go("adapters")
        page.get_by_text(f"{ADAPTERS - DRAWN + 1:,} older or archived").wait_for()
        took = time.monotonic() - began

        assert took < 30, f"it took {took:.1f} s"
        assert 0 < page.evaluate(READ, "v1/adapters") < 200_000, "bytes; the whole list has 3 million"
        assert page.evaluate("document.querySelectorAll('*').length") < 1500
        assert faults(page) == []
        page.locator(".folded summary").press("Enter")
        expect(page.locator(".folded li")).to_have_count(50)
        page.get_by_role("button", name="More").press("Enter")
        expect(page.locator(".folded li")).to_have_count(100)
        assert faults(page) == []
        page.get_by_role("textbox", name="Version").fill("v1.0.42")
        page.keyboard.press("Enter")
        page.get_by_role("region", name="Version v1.0.42").wait_for()
        assert page.evaluate("performance.memory.usedJSHeapSize") < 50e6
        assert visit.complaints() == []


def test_it_says_when_the_fleet_is_away_and_goes_on_by_itself(browser: Browser, guarded: Fleet) -> None:
    leader = guarded[ORCHESTRATOR]
    port = free_port()
    second = {**leader.environment, "RATCHET_ORCHESTRATOR_HTTP_PORT": str(port)}
    standby = Member("standby", leader.module, port, second, guarded.folder / "standby.log", forked=True)
    guarded.members["standby"] = standby
    standby.start()
    wait_for_answer(standby)
    with visiting(browser, f"http://127.0.0.1:{port}") as visit, visiting(browser, origin(guarded)) as other:
        for one in (visit, other):
            one.page.goto(f"{one.origin}/#/queues")
            enter(one, token(guarded, Role.OPERATOR))
        visit.wait_for("This orchestrator is on standby")
        expect(other.page.locator(".live")).to_have_text("Live")

        leader.kill()

        expect(other.page.locator(".live")).to_have_text("Not connected")
        other.wait_for("The orchestrator does not answer")
        visit.wait_for("work.small")
        expect(visit.page.locator(".live")).to_have_text("Live")
        assert visit.loads == 1


def wait_for_answer(member: Member) -> None:
    """Until its HTTP server answers at all: a standby is alive, and never ready."""
    wait_until(lambda: member.get("/healthz")[0] == 200, f"an answer of {member.name}", timeout_s=60)
