"""Which task a request that is tried again belongs to."""

from __future__ import annotations

from services.orchestrator.api.chat_service import MOST, Retries


def test_a_retry_is_of_the_oldest_request_that_was_the_same_and_is_not_finished() -> None:
    retries = Retries()
    for task_id, caller, body in (("t1", "ann", b"x"), ("t2", "ann", b"y"), ("t3", "bob", b"x"), ("t4", "ann", b"x")):
        retries.add_unfinished(task_id, caller, body)

    first = retries.task_of("ann", b"x")
    retries.remove_finished("t1")

    assert (first, retries.task_of("ann", b"x"), retries.task_of("bob", b"x")) == ("t1", "t4", "t3")
    assert retries.task_of("ann", b"z") is None


def test_one_that_is_tried_again_goes_behind_the_others() -> None:
    retries = Retries()
    for task_id in ("t1", "t2", "t1"):
        retries.add_unfinished(task_id, "ann", b"x")

    assert retries.task_of("ann", b"x") == "t2"


def test_memory_is_bounded() -> None:
    retries = Retries()
    for number in range(MOST + 1):
        retries.add_unfinished(f"t{number}", "ann", str(number).encode())

    assert retries.task_of("ann", b"0") is None
    assert retries.task_of("ann", b"1") == "t1"
