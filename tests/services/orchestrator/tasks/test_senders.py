"""Messages from the broker count to the tenant of the user who published them, whom RabbitMQ has checked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ratchet.bus.amqp.forwarding import WireMessage, sent_on
from ratchet.bus.amqp.frames import Properties
from ratchet.bus.protocol import Delivery
from ratchet.bus.retry_policy import SENT_BY
from ratchet.bus.topology import FEEDBACK, TASKS
from ratchet.http.access.roles import Role
from ratchet.service.errors import Reject
from schemas import Feedback, Task
from schemas.messages.result import Result
from services.orchestrator.tasks.result_sender import Senders
from tests.services.orchestrator.api.calling import answering
from tests.services.orchestrator.api.test_tenants import asking
from tests.services.orchestrator.house import REPLIES, House, house

ACME = "client-acme"


def task(user_id: str | None, **given: Any) -> Delivery:
    body = Task(task_id="t", input="x").encode()
    return Delivery(TASKS, body, reply_to=REPLIES, correlation_id="c", user_id=user_id, **given)


def feedback(user_id: str | None, task_id: str = "t") -> Delivery:
    return Delivery(FEEDBACK, Feedback(task_id=task_id, score=1.0).encode(), message_id="f", user_id=user_id)


def ids(fleet: House) -> list[str]:
    return [line["task_id"] for line in fleet.assigned()]


async def test_a_task_is_of_the_tenant_whose_user_published_it_and_is_answered_by_its_own_id(tmp_path: Path) -> None:
    async with house(tmp_path, tenants=("acme",)) as fleet, answering(fleet):
        await fleet.orchestrator.parts.intake.handle(task(ACME))
        await fleet.orchestrator.parts.intake.handle(task("client"))
        results = await fleet.results(2)

        assert ids(fleet) == ["tenant:acme/t", "t"]
        assert [(result.task_id, result.status) for result in results] == [("t", "ok")] * 2
        of_all = [Result.decode(one.body).task_id for one in fleet.bus.deliveries_published("results")]
        assert of_all == ["t"], "the queue that all clients read has the tenant default's alone"


async def test_feedback_reaches_the_tasks_of_its_senders_tenant_alone(tmp_path: Path) -> None:
    async with house(tmp_path, tenants=("acme", "globex")) as fleet, answering(fleet):
        await fleet.orchestrator.parts.intake.handle(task(ACME))
        await fleet.results()

        for foreign in (feedback(None, "tenant:acme/t"), feedback(None), feedback("client-globex")):
            with pytest.raises(Reject, match="no task"):
                await fleet.orchestrator.parts.feedback.handle(foreign)
        await fleet.orchestrator.parts.feedback.handle(feedback(ACME))

        assert len(fleet.orchestrator.parts.feedback.of_task("tenant:acme/t")) == 1


async def test_where_tenants_are_required_what_nobody_vouches_for_is_a_dead_letter_with_the_reason(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, tenants=("acme",), require_tenant=True) as fleet:
        await fleet.submit(Task(task_id="t", input="x"))

        (why,) = await fleet.dead_letters()
        (told,) = await fleet.results()

        assert "RATCHET_REQUIRE_TENANT" in why and ACME in why
        assert told.status == "failed"
        await fleet.orchestrator.parts.intake.handle(task(ACME))
        assert ids(fleet) == ["tenant:acme/t"]


def test_a_tenants_message_that_was_sent_on_never_counts_to_another() -> None:
    sent = sent_on(WireMessage(Properties(user_id=ACME), b"{}"), {})
    assert (sent.properties.user_id, dict(sent.properties.headers or {})[SENT_BY]) == (None, ACME)
    senders = Senders(("acme",), "", is_required=False)

    with pytest.raises(Reject, match="publish it again"):
        senders.tenant_of(task(None, headers={SENT_BY: ACME}))
    assert senders.tenant_of(task(None, headers={SENT_BY: "client"})) == "default"
    assert Senders(("acme",), "a-", is_required=False).tenant_of(task("a-client-acme")) == "acme"


def test_a_retry_is_vouched_for_by_the_user_who_publishes_it() -> None:
    def retried(user_id: str | None, headers: dict[str, Any] | None = None) -> Delivery:
        properties = sent_on(
            WireMessage(Properties(user_id=user_id, headers=headers), b"{}"), {}, "orchestrator"
        ).properties
        return task(properties.user_id, headers=dict(properties.headers or {}))

    senders = Senders(("acme",), "", is_required=True, own_user="orchestrator")

    assert senders.tenant_of(retried(ACME)) == "acme"
    assert senders.is_manager(retried("manager")) and not senders.is_manager(retried("client"))
    twice = retried("orchestrator", {SENT_BY: ACME})
    assert senders.tenant_of(twice) == "acme"
    forged = retried(None, {SENT_BY: "manager"})
    assert not senders.is_manager(forged)
    forged = retried("client", {SENT_BY: "manager"})
    assert not senders.is_manager(forged)


async def test_an_id_that_has_no_room_for_its_tenants_name_is_refused_and_leaves_the_log_readable(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as asked:
        sent = {"task_id": "t" * 190, "input": "x"}
        answers = await asyncio.gather(
            *(asked.call("POST", "/v1/tasks", Role.SUBMITTER, "ann", tenant, json=sent) for tenant in ("acme", None))
        )

    assert [answer.status_code for answer in answers] == [422, 202]
    assert "it may have 188 characters" in answers[0].json()["detail"]
