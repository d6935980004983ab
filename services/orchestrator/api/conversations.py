"""Finds the session of a chat request by the history it brings.

Each request stays a task of its own: it is sampled as a group, scored, and learned from by itself. A session gives them
one arm of an experiment, so that a conversation is answered by one policy. It is kept in memory: a client names its
session where it must hold through a restart of the orchestrator.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ratchet.openai.chat import ChatAnswer, ChatRequest, ChatTurn

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
