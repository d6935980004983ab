"""Turns chat requests into tasks: asks each once, however often it is tried, and waits for its lines.

OpenAI's clients say that a request is a retry (`x-stainless-retry-count`), not of which one: the same caller sent the
same body before. It is kept in memory: a client whose retry must hold through a restart of the orchestrator sends an
Idempotency-Key.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from urllib.parse import quote

from ratchet.http.access.roles import Caller
from ratchet.http.problem import Fault, Problem
from ratchet.http.server.idempotency import key_reused
from ratchet.http.work import Threads
from ratchet.logs.cascaded import served_lines
from ratchet.logs.tenants import AgentTenants, own_id
from ratchet.openai.chat import ChatCompletion, ChatRequest
from ratchet.openai.completions import Model
from ratchet.service.errors import Reject
from schemas.messages.result import Result
from schemas.records.interaction import Interaction
from services.orchestrator.api.chat_answer import Wanted, completion, tells_tokens
from services.orchestrator.api.chat_task import (
    ANY,
    AT,
    Conversations,
    model_of,
    named_session,
    session_of_its_own,
    task_of,
)
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.ledger.logged_task import logged_lines
from services.orchestrator.promotion.arms import Arms, ReadRegistry
from services.orchestrator.tasks.intake import with_keys
from services.orchestrator.tasks.task_service import ForeignTask, SaysSomethingElse, TaskService

MOST = 10_000
"""Unfinished requests that are remembered; beyond, the oldest are forgotten."""


class Retries:
    def __init__(self) -> None:
        self._unfinished: OrderedDict[str, str] = OrderedDict()
        """Task id → what was asked, and by whom; in the order they began."""

    def task_of(self, caller: str, body: bytes) -> str | None:
        """The task of the oldest unfinished request that was the same; it now belongs to whoever asks."""
        asked = _sum(caller, body)
        return next((task_id for task_id, one in self._unfinished.items() if one == asked), None)

    def add_unfinished(self, task_id: str, caller: str, body: bytes) -> None:
        self._unfinished[task_id] = _sum(caller, body)
        self._unfinished.move_to_end(task_id)
        while len(self._unfinished) > MOST:
            self._unfinished.popitem(last=False)

    def remove_finished(self, task_id: str) -> None:
        """The client has the answer."""
        self._unfinished.pop(task_id, None)


def _sum(caller: str, body: bytes) -> str:
    return hashlib.sha256(caller.encode() + b"\n" + body).hexdigest()


NO_LOGPROBS = "the agent that answered tells no log-probabilities of its tokens: ask without logprobs"
NOT_TOLD = Fault(pointer="/logprobs", detail="not told by this agent")
LONGEST_WAIT_S = 24 * 3600.0
"""Every task is closed at its deadline, so this ends no wait before that."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and who sent it. `key`: the task id made from its Idempotency-Key."""

    request: ChatRequest
    caller: Caller
    key: str | None
    is_retry: bool


@dataclass(eq=False)
class ChatService:
    """`names`: what agents may be called besides; `group_size`: of tasks that do not say."""

    tasks: TaskService
    ledger: Ledger
    arms: Mapping[str, Arms]
    _: KW_ONLY
    threads: Threads
    names: Mapping[str, str]
    read_registry: ReadRegistry
    group_size: int
    clock: Callable[[], datetime]
    tenants: AgentTenants

    def __post_init__(self) -> None:
        self._retries = Retries()
        self._conversations = Conversations()

    async def ask(self, question: Question) -> str:
        """The id of the task it is, on its way when this returns. Raises Problem, BusError, DiskFull, JournalError."""
        models = await self._models_for(question.request.model, question.caller)
        model = model_of(question.request.model, models, self.names)
        request = question.request.model_copy(update={"model": model})
        body = request.model_dump_json().encode()
        asked_id = self._task_id(question, body)
        task_id = question.caller.key_of(asked_id)
        self._retries.add_unfinished(task_id, question.caller.name, body)
        session = self._conversations.session_of(question.request, question.caller.name, task_id)
        task = task_of(request, task_id, self.clock(), group_size=self.group_size, session_id=session)
        task = with_keys(task, question.caller.tenant)
        unasked = frozenset({"session_id"} if named_session(request) is None else ())
        try:
            await self.tasks.submit(task, question.caller, same=asked_id == question.key, unasked=unasked)
        except SaysSomethingElse:
            raise key_reused("request") from None
        except (Reject, ForeignTask):
            self._retries.remove_finished(task_id)
            raise
        return task_id

    async def is_closed(self, task_id: str, seconds: float) -> bool:
        """Wait so many seconds and tell whether the task is closed."""
        return await self.tasks.answer(task_id, seconds) is not None

    async def lines(self, task_id: str) -> list[Interaction]:
        """Its samples, once it is answered. Raises Problem where it ends without an answer; JournalError."""
        result = await self.tasks.answer(task_id, LONGEST_WAIT_S)
        if result is None or result.status != "ok":
            self._retries.remove_finished(task_id)
            raise _not_answered(task_id, result)
        known = self.ledger.find(task_id)
        assert known is not None
        return served_lines(await self.threads.run(logged_lines, self.ledger.folder, known))

    def completion_to_deliver(self, question: Question, task_id: str, lines: list[Interaction]) -> ChatCompletion:
        """The answer to hand out: the same request again is a new one, and its history is known.

        Raises Problem where the agent told too little for what was asked.
        """
        request = question.request
        self._retries.remove_finished(task_id)
        if request.logprobs and not tells_tokens(lines):
            raise Problem(422, "Not told", NO_LOGPROBS, "no-logprobs", task_headers(task_id), [NOT_TOLD])
        one_call = request.parallel_tool_calls is False
        wanted = Wanted(request.n or 1, bool(request.logprobs), one_call, request.overruled)
        found = completion(lines, wanted)
        session = lines[0].session_id or session_of_its_own(task_id)
        answers = [choice.message for choice in found.choices]
        self._conversations.remember_answers(request, question.caller.name, session, answers)
        return found

    def models(self, caller: Caller) -> list[Model]:
        """Return every agent that the caller may use, with its versions that can be asked for, then what agents are
        called besides.
        """
        called = (name for name, agent in self.names.items() if name != ANY and self._may_use(caller, agent))
        return [*self._own_models(caller), *(Model(id=name, created=0) for name in called)]

    def _may_use(self, caller: Caller, model: str) -> bool:
        return caller.may_use(self.tenants.of(model.partition(AT)[0]))

    async def _models_for(self, asked: str, caller: Caller) -> set[str]:
        """Names of the fleet's own."""
        agent_id, at, version = asked.partition(AT)
        if at and agent_id in self.arms and version not in self.arms[agent_id].offered:
            await self.read_registry(agent_id)
        return {model.id for model in self._own_models(caller)}

    def _own_models(self, caller: Caller) -> list[Model]:
        own = ((agent_id, arms) for agent_id, arms in self.arms.items() if self._may_use(caller, agent_id))
        return [model for agent_id, arms in own for model in _models(agent_id, arms)]

    def _task_id(self, question: Question, body: bytes) -> str:
        given = question.request.metadata and question.request.metadata.task_id
        if given or question.key:
            return given or question.key or ""
        tried = self._retries.task_of(question.caller.name, body) if question.is_retry else None
        return tried or f"chat-{uuid.uuid4().hex}"


def task_headers(task_id: str) -> dict[str, str]:
    """Ids are any text; a header is ASCII, percent-encoded where it must be."""
    shown = quote(own_id(task_id))
    return {"x-ratchet-task-id": shown, "x-request-id": shown}


def _not_answered(task_id: str, result: Result | None) -> Problem:
    headers = task_headers(task_id) | {"x-should-retry": "false"}
    reason = (result and result.reason) or "there is no answer yet"
    if result is not None and result.status == "failed":
        return Problem(422, "Not answered", reason, "task-failed", headers)
    if result is not None and result.status == "cancelled":
        return Problem(409, "Cancelled", reason, "task-cancelled", headers)
    return Problem(504, "Not in time", reason, "task-expired", headers)


def _models(agent_id: str, arms: Arms) -> list[Model]:
    versions = arms.adapters.versions
    since = {version: entry.since for version, entry in versions.items()}
    listed = [Model(id=agent_id, created=0)]
    for version in sorted(arms.offered, key=lambda one: tuple(map(int, one[1:].split(".")))):
        at = since.get(version)
        listed.append(Model(id=f"{agent_id}{AT}{version}", created=int(at.timestamp()) if at else 0))
    return listed
