"""The tree of an agent's calls of one model, token for token: which call goes on from which, and where that broke.

A node is a call: the messages that were new, the ids they added, what was sampled in answer. A request is matched
against the tree, the longest history first; what was recorded goes to the model as ids, verbatim, and only what is new
is rendered (bridge.py). Nothing that was sampled is ever tokenised again: where it can't be continued, the request
begins a root of its own, and the break has a name.

Pure: it asks no model, and knows no clock. Calls of one agent may overlap.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ratchet.conversation.bridge import BridgeRefused, Recorded, bridge_text
from ratchet.conversation.messages import Message, Sameness, canonical, characters_of, sameness
from ratchet.conversation.template import ChatTemplate, Tools
from ratchet.service.errors import PromptTooLong
from schemas.messages.response import BreakKind
from schemas.messages.work import Grammar

TEXTS_KEPT = 4
"""Texts kept of calls that others may go on from; each is as long as its history."""


@dataclass(eq=False, slots=True)
class Call:
    """One request to the model. `added`: the ids that its new messages `tail` put behind those of `parent`.

    `broke`: why it does not go on from the newest call, None where it does. Open until it is answered or aborted;
    an aborted one may have sampled tokens, and no other call goes on from it. `seconds`: that it took, as whoever asked
    the model measured it. `received`: its answer came back with a later request. `tries`: how often its client had sent
    it before, when it sent it last. `grammar`: that its answer is held to.
    """

    number: int
    parent: Call | None
    tail: tuple[Message, ...]
    tools: Tools
    added: tuple[int, ...]
    broke: BreakKind | None = None
    seconds: float | None = None
    message: Message | None = None
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    aborted: bool = False
    received: bool = False
    tries: int = 0
    grammar: Grammar | None = None
    children: list[Call] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return self.message is None and not self.aborted

    @property
    def path(self) -> list[Call]:
        """Return the calls from the root to this one."""
        found: list[Call] = []
        call: Call | None = self
        while call is not None:
            found.append(call)
            call = call.parent
        return found[::-1]

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """All that the model is given."""
        before = [part for call in self.path[:-1] for part in (call.added, call.ids)]
        return tuple(itertools.chain(*before, self.added))

    @property
    def request_messages(self) -> list[Message]:
        """The whole history as it was recorded."""
        before = [message for call in self.path[:-1] for message in (*call.tail, call.message) if message is not None]
        return [*before, *self.tail]


@dataclass(frozen=True, slots=True)
class _Match:
    """`normalised`: the calls on the way whose answers came back otherwise written."""

    call: Call
    length: int
    normalised: tuple[Call, ...]

    @property
    def rank(self) -> tuple[int, int, bool, int]:
        return self.length, -len(self.normalised), not self.call.children, self.call.number


class Conversation:
    """`strict`: an answer that comes back otherwise written than it was recorded is another one.

    `breaks` counts them by kind, `replayed` the requests that were retries; `normalised` is how many answers came back
    otherwise written and were taken for what they are.
    """

    def __init__(
        self,
        template: ChatTemplate,
        *,
        strict: bool = False,
        most_characters: int | None = None,
        numbers: Iterator[int] | None = None,
    ) -> None:
        """`most_characters`: of messages that fit the model's context. `numbers`: of the calls, where several
        conversations of one rollout have them in common."""
        self.calls: list[Call] = []
        self.breaks: Counter[BreakKind] = Counter()
        self.replayed = 0
        self._template = template
        self._strict = strict
        self._most_characters = most_characters
        self._roots: list[Call] = []
        self.numbers = numbers or itertools.count()
        self._normalised: set[int] = set()
        self._written: dict[int, str] = {}
        """Texts of all that was asked, as the template wrote it, by call; only the newest."""

    @property
    def normalised_count(self) -> int:
        return len(self._normalised)

    def ask(self, messages: Iterable[Mapping[str, Any]], tools: Tools | None = None, *, retry: int = 0) -> Call:
        """A new call, to be answered or aborted; its `prompt_ids` are what the model is to be asked.

        `retry`: how often a client says that it sent this request before. It gets the call it already made, open or
        answered, if that was not aborted. An answer that its client went on from was not lost, and a call that was sent
        again so often is another request's: then it asks the same once more, and the first try never came. Raises
        PromptRefused, and is as it was then.
        """
        asked, tools = self._canonical(messages), list(tools or ())
        earlier = self._same(asked, tools, retry) if retry else None
        if earlier is not None and not (earlier.aborted or earlier.received):
            self.replayed += 1
            earlier.tries = retry
            return earlier
        match = self._match(asked)
        why = None if match else self._why_root(asked, tools)
        call, written = self._begin_call(match, asked, tools) if match else self._root(asked, tools, why)
        call.tries = retry
        self._keep(call, written)
        if match and call.parent is match.call:
            self._normalised.update(one.number for one in match.normalised)
        if match:
            match.call.received = True
        siblings = call.parent.children if call.parent else self._roots
        siblings.append(call)
        self.calls.append(call)
        if call.broke is not None and call.broke != "aborted":
            self.breaks[call.broke] += 1
        return call

    def prompt_tokens(self, messages: Iterable[Mapping[str, Any]], tools: Tools | None = None) -> int:
        """Count the prompt tokens that such a call would have; no call is made. Raises PromptRefused."""
        asked, tools = self._canonical(messages), list(tools or ())
        match = self._match(asked)
        call, _ = self._begin_call(match, asked, tools) if match else self._root(asked, tools, None)
        return len(call.prompt_ids)

    def answer(self, call: Call, message: Mapping[str, Any], ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Record what was sampled, and the message that the client is given for it."""
        self._record_sample(call, ids, logprobs)
        call.message = canonical({"role": "assistant"} | dict(message))

    def abort(self, call: Call, ids: Sequence[int] = (), logprobs: Sequence[float] = ()) -> None:
        """The client went away, or the model failed, after so much was sampled."""
        self._record_sample(call, ids, logprobs)
        call.aborted = True
        self.breaks["aborted"] += 1

    def withdraw(self, call: Call) -> None:
        """The model was never asked: as if the call had not been made."""
        self.calls.remove(call)
        (call.parent.children if call.parent else self._roots).remove(call)
        if call.broke is not None and call.broke != "aborted":
            self.breaks[call.broke] -= 1
            self.breaks += Counter()

    def _canonical(self, messages: Iterable[Mapping[str, Any]]) -> list[Message]:
        """Raises PromptRefused, also for what is too long, before any time is spent on it."""
        asked = [canonical(message) for message in messages]
        most, characters = self._most_characters, sum(map(characters_of, asked))
        if most is not None and characters > most:
            raise PromptTooLong(
                f"the messages have {characters:,} characters, and the model's context holds no more than {most:,}"
            )
        return asked

    def _record_sample(self, call: Call, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        if not call.open:
            raise ValueError(f"call {call.number} was answered or aborted before")
        if len(ids) != len(logprobs):
            raise ValueError(f"{len(ids)} tokens were sampled with {len(logprobs)} log-probabilities")
        call.ids, call.logprobs = tuple(ids), tuple(logprobs)

    def _begin_call(self, match: _Match, asked: list[Message], tools: Tools) -> tuple[Call, str]:
        """Going on from the matched call, or a root where that can't be; with all that was asked, as it is written."""
        parent, tail = match.call, asked[match.length :]
        if not self._renders_alike(parent, tools):
            return self._root(asked, tools, "tools_changed")
        template, ids = self._template, parent.ids
        assert parent.message is not None
        recorded = Recorded(parent.request_messages, parent.message, template.text(ids), template.ends_itself(ids))
        before = self._written.get(parent.number) if tools == parent.tools else None
        try:
            between, written = bridge_text(template, recorded, tail, tools, before)
        except BridgeRefused:
            return self._root(asked, tools, "retokenised")
        added = tuple(template.encode(between, first=False))
        call = Call(next(self.numbers), parent, tuple(tail), tools, added, self._why_branch(parent.children, tail))
        return call, written

    def _root(self, asked: list[Message], tools: Tools, broke: BreakKind | None) -> tuple[Call, str]:
        written = self._template.render(asked, tools, ask=True)
        added = tuple(self._template.encode(written))
        call = Call(next(self.numbers), None, tuple(asked), tools, added, broke)
        return call, written

    def _keep(self, call: Call, written: str) -> None:
        """Keep the text, so that the next turn need not render the past again."""
        self._written[call.number] = written
        if len(self._written) > TEXTS_KEPT:
            del self._written[next(iter(self._written))]

    def _renders_alike(self, call: Call, tools: Tools) -> bool:
        if tools == call.tools:
            return True
        first = call.path[0].tail
        return self._template.render(first, tools, ask=True) == self._template.render(first, call.tools, ask=True)

    def _why_branch(self, siblings: Sequence[Call], tail: Sequence[Message]) -> BreakKind | None:
        """Return why a call branches off: asked at the same time, asked again, after one that was aborted, or
        rewritten."""
        if not siblings:
            return None
        if any(call.open for call in self.calls):
            return "parallel"
        same = [call for call in siblings if list(call.tail) == list(tail)]
        if same:
            return "aborted" if same[-1].aborted else "parallel"
        return "rewritten" if any(not call.aborted for call in siblings) else "aborted"

    def _why_root(self, asked: list[Message], tools: Tools) -> BreakKind | None:
        """No recorded history is the beginning of this one: another conversation, or one that was rewritten."""
        if not self.calls:
            return None
        if any(call.open for call in self.calls):
            return "parallel"
        if (same := self._same(asked, tools)) is not None:
            return "aborted" if same.aborted else "parallel"
        if (same := self._same(asked, None)) is not None:
            return "tools_changed"
        answers = [call.message for call in self.calls if call.message is not None]
        quoted = any(sameness(answer, message) for answer in answers for message in asked)
        begins_alike = any(root.tail[:1] == tuple(asked[:1]) for root in self._roots)
        return "rewritten" if quoted or begins_alike else "parallel"

    def _same(self, asked: list[Message], tools: Tools | None, retry: float = math.inf) -> Call | None:
        """The newest call that asked just that, and was sent again less often."""
        alike = (call for call in reversed(self.calls) if tools is None or call.tools == tools)
        return next((call for call in alike if call.tries < retry and call.request_messages == asked), None)

    def _match(self, asked: list[Message]) -> _Match | None:
        """The answered call whose whole history, answer included, is the longest beginning of what is asked."""
        found: list[_Match] = []
        waiting: list[tuple[Call, int, tuple[Call, ...]]] = [(root, 0, ()) for root in self._roots]
        while waiting:
            call, start, normalised = waiting.pop()
            end = start + len(call.tail)
            if call.message is None or end >= len(asked) or tuple(asked[start:end]) != call.tail:
                continue
            same = self._sameness(call, call.message, asked[end])
            if same is None or (same == "normalised" and self._strict):
                continue
            others = normalised if same == "same" else (*normalised, call)
            found.append(_Match(call, end + 1, others))
            waiting += [(child, end + 1, others) for child in call.children]
        return max(found, key=lambda match: match.rank, default=None)

    def _sameness(self, call: Call, recorded: Message, given: Message) -> Sameness | None:
        """Compare what came back with the answer, or with all that was sampled: a client may put a stop string back."""
        if (same := sameness(recorded, given)) is not None or given["role"] != "assistant":
            return same
        whole = recorded | {"content": self._template.text(call.ids)}
        return "normalised" if sameness(whole, given) is not None else None
