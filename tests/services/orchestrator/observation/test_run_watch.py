"""What is told of training runs: each change once, whether a look or a message was faster."""

from __future__ import annotations

from ratchet.training_runs.progress import RunProgressRecord
from ratchet.training_runs.views import ended_view, open_view
from schemas.api.runs import RunProgress, RunState, RunView
from schemas.messages.adapter_trained import AdapterTrained
from schemas.messages.train_request import TrainRequest
from services.orchestrator.observation.run_watch import RunWatch
from tests.ratchet.adapters.making_adapters import NOON

REFUSED = AdapterTrained(request_id="r-1", agent_id="small", status="refused", reason="too few groups")


def seen(state: RunState = "queued", step: int | None = None, stage: str = "training") -> RunView:
    request = TrainRequest(request_id="r-1", agent_id="small")
    progress = RunProgress(stage=stage, step=step, steps=8, seconds_left=None, at=NOON)
    return open_view(request, NOON, state, 1, RunProgressRecord(progress=progress) if state == "running" else None)


def test_a_run_is_told_of_when_it_is_asked_for_at_each_step_and_at_its_end() -> None:
    watch = RunWatch()
    looks = [[], [seen()], [seen()], [seen("running", None, "reading")], [seen("running", 1)], [seen("running", 1)]]
    looks += [[seen("running", 2)], [ended_view(REFUSED, None, NOON)], [ended_view(REFUSED, None, NOON)]]

    told = [[(one.state, one.step) for one in watch.news(look)] for look in looks]

    assert told == [
        [],
        [("requested", None)],
        [],
        [("running", None)],
        [("running", 1)],
        [],
        [("running", 2)],
        [("refused", None)],
        [],
    ]


def test_what_was_there_at_the_first_look_is_no_news() -> None:
    assert RunWatch().news([seen("running", 3)]) == []


def test_an_end_is_told_once_if_the_message_is_faster() -> None:
    watch = RunWatch()
    watch.news([seen("running", 3)])

    told = watch.heard(REFUSED)
    news = watch.news([ended_view(REFUSED, None, NOON)])

    assert told is not None and (told.state, told.reason) == ("refused", "too few groups")
    assert news == []


def test_an_end_is_told_once_if_the_look_is_faster() -> None:
    watch = RunWatch()
    watch.news([seen("running", 3)])

    (news,) = watch.news([ended_view(REFUSED, None, NOON)])

    assert (news.state, news.reason) == ("refused", "too few groups")
    assert watch.heard(REFUSED) is None
