"""Tasks in: refuse the broken, repeat the answered, admit the new.

The write-ahead line is on disk before the Work leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime

from ratchet.bus.protocol import Bus, Delivery, decode_delivery, derived_id
from ratchet.bus.topology import RESPONSES, work_queue
from ratchet.concurrency.keyed import KeyedLock
from ratchet.logs.names import BIG_TASKS
from ratchet.logs.tenants import DEFAULT, MARK, key_beginning, key_of, own_id, tenant_of
from ratchet.service import failpoint
from ratchet.service.errors import BusError, Reject
from ratchet.service.telemetry import Log, task_in_hand
from schemas.messages.response import Response
from schemas.messages.task import Task
from schemas.messages.work import Arm, Work
from services.orchestrator import metrics
from services.orchestrator.ledger.index import Entry
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.promotion.arms import Arms, ReadRegistry
from services.orchestrator.tasks.admission import AdmissionPolicy, Origin, admit
from services.orchestrator.tasks.result_sender import ResultSender, Senders
from services.orchestrator.tasks.settlement import completed_response

log = Log("intake")

FORGOTTEN = (
    "a task with this task_id was answered before, so it is not run again; its answer is no longer kept here "
    "(RATCHET_LOG_KEEP_GB, RATCHET_LOG_KEEP_DAYS). To have it run, publish it under another task_id"
)

TAKEN = "another task was submitted over HTTP under this task_id: send this one under another task_id"
LONGEST_KEY = 200
"""Characters of an Identifier."""


OF_ITS_OWN = frozenset({"task_id", "metadata"})
"""Fields that may differ where the same task is sent again."""
FILLED_IN = frozenset({"agent_id", "deadline"})
"""Fields that a Work always has, and a Task need not."""


class ExpiredResult(Reject):
    """The task was answered, and its answer is no longer kept."""

    problem = 410, "Gone", "forgotten"


@dataclass(eq=False)
class Intake:
    """Handles `tasks`. A task seen before is answered from the index, or left alone while it is being worked on.

    `samples`: of an agent's next task that does not say; None for the fleet's group.

    `admitted` hears of each Work in the log.
    """

    bus: Bus
    ledger: Ledger
    results: ResultSender
    policy: AdmissionPolicy
    arms: Mapping[str, Arms]
    _: KW_ONLY
    max_message_bytes: int
    clock: Callable[[], datetime]
    read_registry: ReadRegistry
    samples: Callable[[str], int | None]
    senders: Senders
    admitted: Callable[[Work], None] = lambda _: None

    def __post_init__(self) -> None:
        self._admitting = KeyedLock()
        self._unsent: set[str] = set()
        self._sent_again: set[str] = set()

    async def handle(self, delivery: Delivery) -> None:
        origin = Origin(delivery.reply_to, delivery.correlation_id)
        try:
            task, is_managers = self._decode_task(delivery), self.senders.is_manager(delivery)
            tenant = tenant_of(task.task_id) if is_managers else self.senders.tenant_of(delivery)
            task = with_keys(task, tenant)
            self.policy.check_registered(task, is_managers=is_managers)
            await self._check(task, len(delivery.body), tenant)
        except Reject as refusal:
            metrics.tasks_refused.inc()
            await self.results.refuse(_task_id_of(delivery.body), str(refusal), origin)
            raise
        task_in_hand.set(task.task_id)
        await self._accept(task, origin, seen_before=delivery.redelivered)

    def _decode_task(self, delivery: Delivery) -> Task:
        if len(delivery.body) > self.max_message_bytes:
            raise Reject(
                f"too large: {len(delivery.body):,} bytes, at most {self.max_message_bytes:,} "
                f"(RATCHET_MAX_MESSAGE_BYTES): send a reference to the data instead"
            )
        return decode_delivery(Task, delivery)

    async def _check(self, task: Task, size: int, tenant: str) -> None:
        check_keys(task, tenant)
        arms = self.arms[self.policy.agent_for(task)]
        for player in arms.arms_to_refresh(task):
            await self.read_registry(player.agent_id)
        arms.check(task)
        if not task.task_id.isprintable():
            raise Reject("task_id has a character that is not printed, or that turns text around: name another")
        self.policy.check_size(task, size)
        self.policy.check_select(task)
        self.policy.check_form(task)
        self.policy.check_constraints(task)
        if task.deadline is not None:
            self.policy.check_deadline(task, self.clock())

    async def submit(self, task: Task, owner: str | None = None, tenant: str = DEFAULT) -> bool:
        """Admit a task whose caller looks for the answer itself: nothing is sent back. True if it is new.

        Not to be cancelled. Raises Reject, ExpiredResult, BusError, DiskFull, JournalError.
        """
        self.policy.check_registered(task, is_managers=False)
        await self._check(task, len(task.encode()), tenant)
        known = await self._find_or_admit(task, Origin(owner=owner))
        if known is None:
            return True
        metrics.tasks_repeated.inc()
        await self.send_again(known)
        return False

    async def send_again(self, known: Entry) -> None:
        """The Work of an open task, if it may never have left: an admission before this start was cut short maybe."""
        before = known.sequence < self.ledger.first_sequence and known.task_id not in self._sent_again
        if known.result is None and known.work is not None and (before or known.task_id in self._unsent):
            await self._send(Work.decode(known.work), known.work)
            self._sent_again.add(known.task_id)

    async def _accept(self, task: Task, origin: Origin, *, seen_before: bool) -> None:
        try:
            known = await self._find_or_admit(task, origin)
        except ExpiredResult:
            metrics.tasks_repeated.inc()
            await self.results.refuse(task.task_id, FORGOTTEN, origin)
            return
        if known is not None and known.owner is not None and differs(task, await self.ledger.work_of(known)):
            await self.results.refuse(task.task_id, TAKEN, origin)
        elif known is not None:
            metrics.tasks_repeated.inc()
            await self._repeat(known, origin, seen_before=seen_before)

    async def _find_or_admit(self, task: Task, origin: Origin) -> Entry | None:
        """Return what is known of it; None where it is new: then it was admitted and sent. Raises ExpiredResult."""
        async with self._admitting.of(task.task_id):
            if (known := self.ledger.find(task.task_id)) is not None:
                return known
            if self.ledger.has_forgotten(task.task_id):
                raise ExpiredResult(FORGOTTEN)
            work = self._work_of(task, origin)
            body = await self._log(work)
        await self._send(work, body)
        return None

    async def ask(self, task: Task, arm: Callable[[int], Arm]) -> None:
        """Admit a task of our own with the arm made for its sequence number. Raises BusError, JournalError."""
        work = self._own_work_of(task, arm)
        body = await self._log(work)
        await self._send(work, body)

    async def rescore(self, task: Task, answer: str, arm: Callable[[int], Arm]) -> None:
        """Admit a task of our own that no agent answers: the scorer gets this answer."""
        work = self._own_work_of(task, arm)
        await self._log(work)
        given = Response(task_id=task.task_id, response=answer, agent_id=work.agent_id)
        response = completed_response(given, work)
        message_id = derived_id(task.task_id, "response")
        await self.bus.publish(RESPONSES, response.encode(), type=Response.TYPE, message_id=message_id)

    def _own_work_of(self, task: Task, arm: Callable[[int], Arm]) -> Work:
        now = self.clock()
        arm_of_it = arm(self.ledger.next_sequence())
        return admit(task, self.policy, arm=arm_of_it, now=now, origin=Origin())

    def _work_of(self, task: Task, origin: Origin) -> Work:
        now = self.clock()
        sequence = self.ledger.next_sequence()
        agent_id = self.policy.agent_for(task)
        arm, samples = self.arms[agent_id].arm_for(task, sequence), self.samples(agent_id)
        return admit(task, self.policy, arm=arm, now=now, origin=origin, samples=samples)

    async def _log(self, work: Work) -> bytes:
        body = await self.ledger.admit(work)
        self.arms[work.agent_id].note_admitted(work)
        self.admitted(work)
        metrics.counter_of_admitted(work.agent_id).inc()
        failpoint.reach("admitted")
        return body

    async def _repeat(self, known: Entry, origin: Origin, *, seen_before: bool) -> None:
        """The same task again: its stored Result; or, while it is open, a place among those who wait for it.

        Where it may have been us who saw it before, and its Work may never have left, that is sent again.
        """
        if known.result is not None:
            await self.results.send(known.task_id, known.result, origin)
        elif known.work is not None:
            work = Work.decode(known.work)
            if origin.reply_to and origin != Origin(work.reply_to, work.correlation_id):
                await self.ledger.add_waiter(known.task_id, origin.reply_to, origin.correlation_id)
            if seen_before or known.task_id in self._unsent:
                await self._send(work, known.work)

    async def _send(self, work: Work, body: bytes) -> None:
        """Send a Work to the agent's queue, or to one of the asker's own. Raises BusError."""
        message_id = derived_id(work.task_id, "work")
        sent = True
        try:
            if work.work_to is None:
                queue = queue_of(work)
                await self.bus.publish(queue, body, type=Work.TYPE, message_id=message_id)
            else:
                sent = await self.bus.reply(
                    work.work_to, body, type=Work.TYPE, message_id=message_id, correlation_id=work.correlation_id
                )
        except BusError:
            self._unsent.add(work.task_id)
            raise
        if sent:
            self._unsent.discard(work.task_id)
        else:  # who asks again gets it; else its deadline ends it
            log.info("no-asker", f"nobody gets its Work: there is no queue {work.work_to!r} (work_to)")
            self._unsent.add(work.task_id)


def differs(task: Task, work: Work, unasked: Collection[str] = ()) -> bool:
    """True if the task does not ask what the Work was made from."""
    fields = set(Task.model_fields) - OF_ITS_OWN - set(unasked)
    fields -= {name for name in FILLED_IN if getattr(task, name) is None}
    return any(getattr(task, name) != getattr(work, name) for name in fields)


def queue_of(work: Work) -> str:
    """Return the queue that its Work waits in."""
    return work_queue(work.agent_id, priority=work.priority, registered=work.registered_agent is not None)


def with_keys(task: Task, tenant: str) -> Task:
    """Return the task under the keys of its tenant."""
    if tenant == DEFAULT:
        return task
    keys = {"task_id": key_of(tenant, task.task_id)}
    if task.session_id is not None:
        keys["session_id"] = key_of(tenant, task.session_id)
    return task.model_copy(update=keys)


def check_keys(task: Task, tenant: str) -> None:
    """Raises Reject for a task, or a session, under the key of another tenant than the one that sends it, for an id
    that has no room for its tenant's name, and for one by which the fleet asks the big model of a cascade.
    """
    if own_id(task.task_id).startswith(BIG_TASKS):
        raise Reject(f"task_id may not begin with {BIG_TASKS!r}: so the fleet calls what it asks a cascade's big model")
    for name, key in (("task_id", task.task_id), ("session_id", task.session_id)):
        if key is not None and len(key) > LONGEST_KEY:
            most = LONGEST_KEY - len(key_beginning(tenant))
            raise Reject(f"{name} is too long: of the tenant {tenant} it may have {most} characters")
        if key is not None and tenant_of(key) != tenant:
            raise Reject(f"{name} may not begin with {MARK!r}: that is how the fleet keeps tenants' tasks apart")


def _task_id_of(body: bytes) -> str:
    """The id a broken task may still carry; empty where there is none."""
    try:
        task_id = json.loads(body)["task_id"]
        task_id.encode()  # a lone surrogate can't be told to anybody
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return str(task_id)
