"""Agents that do anything with their histories, against a model that samples anything.

What was sampled is known by its log-probability, which no two tokens have in common.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.conversation.bridge import TOOL
from ratchet.conversation.conversation import Call, Conversation
from ratchet.conversation.segments import segments_of
from ratchet.service.errors import PromptRefused
from tests.quick import rounds
from tests.ratchet.conversation.speakers import MODELS, SPECIAL, codec, template

ACTS = ("go on", "go on", "go on", "edit", "compact", "branch", "retry", "abort", "reorder", "tools", "helper", "wait")
TOOLS = ([], [TOOL], [{"type": "function", "function": TOOL["function"] | {"name": "weigh"}}])
Context = tuple[int, ...]


class Agent:
    """`sampled`: of each log-probability the token and all that came before it, as the model saw them."""

    def __init__(self, name: str, seed: int, *, strict: bool) -> None:
        self.dice = random.Random(seed)
        self.spoken = template(name)
        self.conversation = Conversation(self.spoken, strict=strict)
        self.sampled: dict[float, tuple[Context, int]] = {}
        self.histories: list[list[dict[str, Any]]] = [[{"role": "user", "content": "begin"}]]
        self.waiting: list[tuple[Call, list[dict[str, Any]]]] = []
        self.tools: list[Any] = []
        self.answered: set[int] = set()

    def act(self, what: str) -> None:
        history = list(self.dice.choice(self.histories))
        place = self.dice.randrange(len(history))
        if what == "edit":
            history[place] = history[place] | {"content": f"edited {self.dice.random()}"}
        elif what == "compact":
            history = [{"role": "user", "content": f"so far: {len(history)} messages"}]
        elif what == "reorder":
            self.dice.shuffle(history)
        elif what == "helper":
            history = [{"role": "system", "content": "help"}, {"role": "user", "content": f"{self.dice.random()}"}]
        elif what == "branch":
            history = history[: place + 1]
        elif what == "tools":
            self.tools = self.dice.choice(TOOLS)
        elif what == "wait":
            return self.answer_one()
        if history[-1]["role"] == "assistant":
            role = "tool" if history[-1].get("tool_calls") else "user"
            history.append({"role": role, "content": self.dice.choice("xyz"), "tool_call_id": "call00001"})
        self.ask(history, retry=what == "retry", abort=what == "abort")

    def ask(self, history: list[dict[str, Any]], *, retry: bool, abort: bool) -> None:
        try:
            call = self.conversation.ask(history, self.tools, retry=retry)
        except PromptRefused:
            return
        if call.number in self.answered:
            assert retry
            return
        self.answered.add(call.number)
        if abort:
            self.conversation.abort(call, *self.sample(call))
        else:
            self.waiting.append((call, history))
            if self.dice.random() < 0.7:
                self.answer_one()

    def answer_one(self) -> None:
        if not self.waiting:
            return
        call, history = self.waiting.pop(self.dice.randrange(len(self.waiting)))
        ids, logprobs = self.sample(call)
        text = codec().decode([token for token in ids if token not in self.spoken.ends])
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.dice.random() < 0.3:
            function = {"name": "look", "arguments": '{"box":  "a"}'}
            message |= {"content": "", "tool_calls": [{"id": "call00001", "type": "function", "function": function}]}
        if self.dice.random() < 0.3:
            message["reasoning_content"] = "hm"
        self.conversation.answer(call, message, ids, logprobs)
        self.histories.append([*history, self.come_back(message)])

    def come_back(self, message: dict[str, Any]) -> dict[str, Any]:
        """Maybe with other white space, or without reasoning."""
        if self.dice.random() < 0.3:
            message = message | {"content": f" {message['content']}\n"}
        if self.dice.random() < 0.5:
            message = {name: value for name, value in message.items() if name != "reasoning_content"}
        return message

    def sample(self, call: Call) -> tuple[list[int], list[float]]:
        """Any tokens at all, one at least, maybe with an end."""
        ids = [self.dice.randrange(len(SPECIAL), 1500) for _ in range(self.dice.randint(1, 4))]
        if self.dice.random() < 0.8:
            ids.append(self.dice.choice(sorted(self.spoken.ends)))
        logprobs = []
        for index, token in enumerate(ids):
            logprobs.append(-float(len(self.sampled) + 1))
            self.sampled[logprobs[-1]] = ((*call.prompt_ids, *ids[:index]), token)
        return ids, logprobs


@pytest.mark.parametrize("name", sorted(MODELS))
@settings(max_examples=rounds(40), deadline=None)
@given(acts=st.lists(st.sampled_from(ACTS), max_size=25), seed=st.integers(0, 2**32), strict=st.booleans())
def test_every_sampled_token_is_in_one_segment_under_its_own_context_and_nothing_else_is(
    name: str, acts: list[str], seed: int, strict: bool
) -> None:
    agent = Agent(name, seed, strict=strict)
    for act in acts:
        agent.act(act)

    segments = segments_of(agent.conversation)

    trained: list[float] = []
    for segment in segments:
        whole = (*segment.prompt_ids, *segment.completion_ids)
        logprobs = iter(segment.logprobs)
        for start, end in segment.spans:
            for place in range(len(segment.prompt_ids) + start, len(segment.prompt_ids) + end):
                trained.append(next(logprobs))
                assert agent.sampled[trained[-1]] == (whole[:place], whole[place])
    assert sorted(trained) == sorted(agent.sampled)
    aborted = sum(call.aborted for call in agent.conversation.calls)
    named = Counter(call.broke for call in agent.conversation.calls if call.broke not in (None, "aborted"))
    assert agent.conversation.breaks == named + Counter({"aborted": aborted})
    assert sum(segment.broke is None for segment in segments) <= 1
