"""A chat request becomes a Task: the same one that a user of the queue would publish. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ratchet.http.problem import Fault, Problem
from ratchet.openai.chat import ChatAnswer, ChatRequest, ChatTurn
from ratchet.openai.tools import GivenTool
from schemas.messages.base import Metadata
from schemas.messages.task import CalledFunction, ChatMessage, MessageToolCall, Prompt, Task, Tool, ToolFunction

MOST = 10_000
"""Answers that are remembered; beyond, the oldest are forgotten."""


class Conversations:
    def __init__(self) -> None:
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def session_of(self, request: ChatRequest, caller: str, task_id: str) -> str | None:
        """Return the session of the answer that its history ends with; None: it stands alone.

        A request that offers tools, whose results are to come, has a session of its own.
        """
        last = max((number for number, turn in enumerate(request.messages) if turn.role == "assistant"), default=None)
        if last is not None:
            key = _key(request.model, caller, request.messages[: last + 1])
            if (known := self._sessions.get(key)) is not None:
                self._sessions.move_to_end(key)
                return known
        return session_of_its_own(task_id) if request.offered else None

    def remember_answers(
        self, request: ChatRequest, caller: str, session_id: str, answers: Sequence[ChatAnswer]
    ) -> None:
        """Remember the answers: a client that sends one of them back is of that session."""
        for answer in answers:
            turn = ChatTurn.model_validate(answer.model_dump(exclude_none=True))
            key = _key(request.model, caller, (*request.messages, turn))
            self._sessions[key] = session_id
            self._sessions.move_to_end(key)
        while len(self._sessions) > MOST:
            self._sessions.popitem(last=False)


def session_of_its_own(task_id: str) -> str:
    """Begun by this task. Never the task's own id, whose draw of an arm is another unit's."""
    return f"conversation-{hashlib.sha256(task_id.encode()).hexdigest()[:32]}"


def _key(model: str, caller: str, turns: Sequence[ChatTurn]) -> str:
    said = json.dumps([model, caller, *map(_identity_of_turn, turns)])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def _identity_of_turn(turn: ChatTurn) -> list[Any]:
    """Return the part of a turn that a client can be trusted to send back: no reasoning, no white space around an
    answer."""
    calls = [(call.id, call.function.name) for call in turn.tool_calls or ()]
    return [turn.role, turn.text.strip() if turn.role == "assistant" else turn.text, turn.tool_call_id, calls]


SOURCE = "openai"
AT = "@"
ANY = "*"


def task_of(
    request: ChatRequest, task_id: str, now: datetime, *, group_size: int, session_id: str | None = None
) -> Task:
    """`group_size`: the fleet's own. Where more choices are asked for, more answers are sampled.

    `session_id`: of the conversation, where the client names none.
    """
    agent_id, _, version = request.model.partition(AT)
    meta = request.metadata
    return Task(
        task_id=task_id,
        input=prompt_of(request.messages),
        metadata=Metadata(
            timestamp=(meta and meta.timestamp) or now,
            source=(meta and meta.source) or SOURCE,
            **((meta and meta.__pydantic_extra__) or {}),
        ),
        agent_id=agent_id,
        reference=meta and meta.reference,
        criteria=meta and meta.criteria,
        samples=_samples(request, group_size),
        temperature=request.temperature,
        top_p=request.top_p,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stop=request.stop or None,
        format=request.format,
        adapter_version=version or None,
        tools=tuple(map(_tool, request.offered)) or None,
        needs_token_texts=request.logprobs or None,
        task_type=meta and meta.task_type,
        local_only=meta and meta.local_only,
        session_id=named_session(request) or session_id,
    )


def named_session(request: ChatRequest) -> str | None:
    return (request.metadata and request.metadata.session_id) or request.user


def model_of(asked: str, models: Collection[str], names: Mapping[str, str]) -> str:
    """Return which of the fleet's `models` is meant. `names`: other names of them; `*` is any. Raises Problem 404."""
    if asked in models:
        return asked
    if (named := names.get(asked, names.get(ANY))) is None:
        raise unknown_model(asked, {*models, *names})
    return named


def unknown_model(model: str, models: Iterable[str]) -> Problem:
    detail = f"the model {model[:128]!r} does not exist: this fleet has {', '.join(sorted(models))}"
    return Problem(404, "No such model", detail, "model_not_found", faults=[Fault(pointer="/model", detail="unknown")])


def prompt_of(turns: tuple[ChatTurn, ...]) -> Prompt:
    """One turn of the user alone is its text, as in the queue; anything else is chat messages."""
    if len(turns) == 1 and turns[0].role == "user":
        return turns[0].text
    return tuple(map(_message, turns))


def _message(turn: ChatTurn) -> ChatMessage:
    calls = tuple(
        MessageToolCall(id=call.id, function=CalledFunction(name=call.function.name, arguments=call.function.arguments))
        for call in turn.tool_calls or ()
    )
    return ChatMessage(
        role="system" if turn.role == "developer" else turn.role,
        content=turn.text,
        tool_calls=calls or None,
        tool_call_id=turn.tool_call_id,
    )


def _tool(given: GivenTool) -> Tool:
    function = given.function
    return Tool(
        function=ToolFunction(name=function.name, description=function.description, parameters=function.parameters)
    )


def _samples(request: ChatRequest, group_size: int) -> int | None:
    """None: the fleet's group. Greedy answers are all the same, so one is enough."""
    if request.temperature == 0:
        return 1
    return request.n if request.n is not None and request.n > group_size else None
