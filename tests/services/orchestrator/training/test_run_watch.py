"""What is told of training runs: each change once, whether a look or a message was faster."""

from __future__ import annotations

from ratchet.runs.progress import RunProgressRecord
from ratchet.runs.run import TrainingRun
from schemas.api.runs import RunProgress, RunView
from schemas.messages.training import AdapterTrained, TrainRequest
from services.orchestrator.observation.watcher import RunWatch
from tests.ratchet.adapters.making_adapters import NOON

REFUSED = AdapterTrained(request_id="r-1", agent_id="small", status="refused", reason="too few groups")


ENDED = TrainingRun(outcome=REFUSED, asked_at=NOON).view


def waiting() -> RunView:
    return TrainingRun(request=TrainRequest(request_id="r-1", agent_id="small"), asked_at=NOON).view


def running(step: int | None = None, stage: str = "training") -> RunView:
    told = RunProgressRecord(progress=RunProgress(stage=stage, step=step, steps=8, seconds_left=None, at=NOON))
    request = TrainRequest(request_id="r-1", agent_id="small")
    return TrainingRun(request=request, asked_at=NOON, attempts=1, progress=told).view


def test_a_run_is_told_of_when_it_is_asked_for_at_each_step_and_at_its_end() -> None:
    watch = RunWatch()
    looks = [[], [waiting()], [waiting()], [running(None, "reading")], [running(1)], [running(1)]]
    looks += [[running(2)], [ENDED], [ENDED]]

    told = [[(one.state, one.step) for one in watch.changes(look)] for look in looks]

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


def test_what_was_there_at_the_first_reading_is_no_change() -> None:
    assert RunWatch().changes([running(3)]) == []


def test_an_end_is_told_once_if_the_message_is_faster() -> None:
    watch = RunWatch()
    watch.changes([running(3)])

    told = watch.end_message(REFUSED)
    news = watch.changes([ENDED])

    assert told is not None and (told.state, told.reason) == ("refused", "too few groups")
    assert news == []


def test_an_end_is_told_once_if_the_look_is_faster() -> None:
    watch = RunWatch()
    watch.changes([running(3)])

    (news,) = watch.changes([ENDED])

    assert (news.state, news.reason) == ("refused", "too few groups")
    assert watch.end_message(REFUSED) is None
