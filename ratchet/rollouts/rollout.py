"""One rollout that is being recorded: its conversation and the answers of the engine, one at a time or several."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

from ratchet.concurrency.keyed import in_batches
from ratchet.concurrency.threads import off_loop
from ratchet.conversation.conversation import Call, Conversation
from ratchet.conversation.segments import RolePart
from ratchet.conversation.stops import Decoding, count_held_back, cut_at_stop, find_stops, select_for_engine
from ratchet.conversation.template import ChatTemplate
from ratchet.dialects.chat import write_message
from ratchet.dialects.dialect import ModelRequest, Parsed, PartialAnswer
from ratchet.dialects.kept_turns import KeptTurns
from ratchet.grammars.grammar import grammar_for
from ratchet.openai.transport import ContextTooLong, ServerUnavailable
from ratchet.rollouts.engine import Token, TokenEngine
from ratchet.rollouts.kept_steps import Answered, Diverged, KeptSteps, NotKept, Sampled, ToolCalled, key_of
from ratchet.rollouts.parsing import Parser, PlainParser, parser_for
from ratchet.rollouts.tool_audit import ToolChain
from ratchet.service.errors import EngineError
from schemas.messages.response import Edited, FinishReason, ForeignPart
from schemas.messages.task import Tool
from schemas.messages.work import BASE_VERSION, Grammar, Sampling

MOST_TOKENS = 4096
"""Tokens of an answer, where a client names no limit."""
MOST_OVERRULED = 8
COUNTS_OF_A_CALL = 4
"""Counts of tokens that are allowed for each call that a rollout may make."""
CHARACTERS_A_TOKEN = 16
"""Most characters a token has in the mean of a prompt: a longer text is refused before it is tokenized."""
MOST_BODIES = 4
"""Requests that are read at once."""


class Budget:
    """Bound of what a rollout may take: calls of the model, and tokens that are sampled for it. None: any number.

    `spent` is set with the first call that is one too many, or with the last token; `says` which limit it was.
    `called_off`: it was ended from outside, before a limit was met.
    """

    def __init__(self, calls: int | None = None, tokens: int | None = None) -> None:
        self.spent = asyncio.Event()
        self.says: str | None = None
        self.called_off = False
        self._calls, self._calls_left = calls, calls
        self._tokens, self._tokens_left = tokens, tokens
        self._counts_left = None if calls is None else calls * COUNTS_OF_A_CALL

    def take_call(self) -> None:
        """Raises BudgetSpent."""
        if self._calls_left == 0:
            self.end(f"it called the model more than {self._calls:,} times")
        self.check_open()
        if self._calls_left is not None:
            self._calls_left -= 1

    def take_count(self) -> None:
        """Count one count of a prompt's tokens, which asks the model nothing and takes time. Raises BudgetSpent."""
        if self._counts_left == 0:
            raise BudgetSpent(f"this rollout counted tokens {COUNTS_OF_A_CALL} times for each call that it may make")
        self.check_open()
        if self._counts_left is not None:
            self._counts_left -= 1

    def check_open(self) -> None:
        """Raises BudgetSpent once it is over."""
        if self.says is not None:
            raise BudgetSpent(f"this rollout is over: {self.says}")

    @property
    def tokens_left(self) -> int | None:
        return self._tokens_left

    def take_token(self) -> None:
        """Count a token that was sampled; end the rollout at its limit."""
        if self._tokens_left is not None:
            self._tokens_left -= 1
            if self._tokens_left <= 0:
                self.end(f"the model sampled {self._tokens:,} tokens for it, as many as it may have")

    def take_tokens(self, count: int) -> None:
        """Count tokens that came at once."""
        if self._tokens_left is not None and count:
            self._tokens_left -= count - 1
            self.take_token()

    def call_off(self, says: str) -> None:
        """End it for a reason that is not the rollout's."""
        self.called_off = self.called_off or self.says is None
        self.end(says)

    def end(self, says: str) -> None:
        """Answer no more calls, for that reason; the first reason stays."""
        self.says = self.says or says
        self.spent.set()


class BudgetSpent(EngineError):
    """The rollout may not ask any more."""


@dataclass(slots=True)
class Answer:
    """Answer so far; `parsed` grows and never takes back. `finish` is there once it is whole, `stopped_at` is
    the stop string that ended it."""

    call: Call
    text_of: Callable[[Sequence[int]], str]
    parsed: Parsed = field(default_factory=Parsed)
    tokens: list[Token] = field(default_factory=list)
    call_ids: list[str] = field(default_factory=list)
    finish: FinishReason | None = None
    stopped_at: str | None = None
    failed: bool = False
    key: str = ""
    """The sum of what was asked, by which the rollout's steps know it."""
    kept: Sampled | None = None
    """The step that it comes from, where it was sampled before."""
    place: int | None = None
    """Among the answers to what has the same key; None where it is not to be kept."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def prompt_tokens(self) -> int:
        return len(self.call.prompt_ids)

    @property
    def sampled_tokens(self) -> int:
        return len(self.tokens)

    @property
    def token_logprobs(self) -> list[tuple[str, float]]:
        return [(self.text_of([token.id]), token.logprob) for token in self.tokens]


class TextRole(Protocol):
    """A role that a model of another provider plays, recorded as text (foreign.py)."""

    role: str
    model: str
    trouble: str | None

    def answer(self, asked: ModelRequest) -> AsyncGenerator[PartialAnswer, None]:
        """Yield the whole answer. Raises Refused, ModelServerError, EngineError."""

    def part(self) -> ForeignPart:
        """Return what it said and took."""


class RecordedRollout:
    """`answers` of a rollout's calls by their numbers; those that were aborted are not kept.

    Of a program with roles this is the record of the first role; `partners` are those of the others, by role. They have
    the budget and the numbers of their calls in common, and each has its own model and conversation.
    """

    def __init__(
        self,
        template: ChatTemplate,
        engine: TokenEngine,
        *,
        model: str,
        parser: Parser | None = None,
        strict: bool = False,
        sampling: Sampling | None = None,
        budget: Budget | None = None,
        role: str | None = None,
        version: str = BASE_VERSION,
        first: RecordedRollout | None = None,
        steps: KeptSteps | None = None,
    ) -> None:
        """`steps`: where what is sampled is kept, and answered from if it is there. `role` and `version`: whose calls
        these are, of a program with roles. `first`: the record of its first role, whose partner this one is. `parser`:
        the template's if absent. `model`: what clients are told, whatever they ask for. `sampling`: the Work's; what a
        client asks for besides is kept in `overruled`, the first values of each parameter."""
        self.conversation: Conversation = Conversation(
            template,
            strict=strict,
            most_characters=CHARACTERS_A_TOKEN * max(1, engine.context),
            numbers=first.conversation.numbers if first else None,
        )
        self.role = role
        self.version = version
        self.partners: dict[str, RecordedRollout] = {}
        if first is not None and role is not None:
            first.partners[role] = self
        self.steps: KeptSteps | None = first.steps if first else steps
        self.tool_audit: ToolChain = first.tool_audit if first else ToolChain(steps)
        self.model = model
        self._template = template
        self._engine = engine
        self._parser = parser or parser_for(template.source)
        self._answers: dict[int, Answer] = {}
        self._sampling = sampling or Sampling()
        self.budget: Budget = first.budget if first else budget or Budget()
        self.overruled: dict[str, list[float | str]] = first.overruled if first else {}
        self.offered_tools = False
        self.foreign: Mapping[str, TextRole] = {}
        """Roles that models of other providers play, by name; `*` is every name that is no role's."""
        self.edited: Edited | None = None
        """The newest edit of a result by a person."""
        self.turns = KeptTurns()
        self.reading = asyncio.Semaphore(MOST_BODIES)
        self._asking = asyncio.Lock()
        self._at_work = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def everyone(self) -> tuple[RecordedRollout, ...]:
        """The records of all roles, the first one's first."""
        return self, *self.partners.values()

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names by which a client may ask: the model's, or those of the roles."""
        own = tuple(part.role for part in self.parts) or (self.model,)
        return (*own, *(role for role in self.foreign if role != "*" and role not in own))

    def foreign_role(self, model: object) -> TextRole | None:
        """Return the role of another provider that a client names as its model; None where it is one of ours."""
        if isinstance(model, str) and (named := self.foreign.get(model)) is not None:
            return named
        return None if model in (self.role, *self.partners) else self.foreign.get("*")

    def for_role(self, model: object) -> RecordedRollout:
        """Return the record of the role that a client names as its model; its own where that is no role's name."""
        return self.partners.get(model, self) if isinstance(model, str) else self

    @property
    def calls(self) -> list[Call]:
        """The calls of all roles."""
        return [call for one in self.everyone for call in one.conversation.calls]

    @property
    def parts(self) -> tuple[RolePart, ...]:
        """The part of each role; nothing where the program has none."""
        return tuple(RolePart(one.role, one.version, one.conversation) for one in self.everyone if one.role is not None)

    @property
    def context(self) -> int:
        """Tokens that the model holds; of several models, the largest."""
        return max(one._engine.context for one in self.everyone)

    @property
    def engine_trouble(self) -> str | None:
        """Reason why an engine, or another provider, does not answer, if it said so."""
        troubles = (*(one._engine.trouble for one in self.everyone), *(one.trouble for one in self.foreign.values()))
        return next((trouble for trouble in troubles if trouble is not None), None)

    async def wait_idle(self) -> None:
        """Wait until no answer is under way: then all that was sampled is in the conversations."""
        for one in self.everyone:
            await one._idle.wait()

    async def call_off_left(self) -> None:
        """Call off answers that the program left early, since it goes on no more."""
        for one in self.everyone:
            await one._engine.call_off_left()

    async def prompt_tokens(self, asked: ModelRequest) -> int:
        """Count the tokens that the model would be given; nothing is asked or noted. Raises PromptRefused."""
        async with self._asking:
            return await off_loop(
                lambda: self.conversation.prompt_tokens(asked.messages, asked.tools), is_large=asked.is_large
            )

    async def answer(self, asked: ModelRequest) -> AsyncGenerator[Answer, None]:
        """The answer each time it has grown, until it is whole. Closed before, it is aborted.

        Raises PromptRefused, ContextTooLong, EngineError.
        """
        self._note_overruled(asked.wants)
        self.offered_tools = self.offered_tools or bool(asked.tools)
        if self._sampling.stop:
            asked = replace(asked, stop=tuple(dict.fromkeys((*self._sampling.stop, *asked.stop))))
        grammar = self._grammar_for(asked)
        call = await self._begin(asked)
        call.grammar = grammar
        known = self._answers.get(call.number)
        async with aclosing(self._replay(known) if known else self._sample(call, asked)) as growing:
            async for answer in growing:
                yield answer

    def _grammar_for(self, asked: ModelRequest) -> Grammar | None:
        """Raises FormatRefused for a form that the model's answers can't be held to."""
        if asked.format is None:
            return None
        tools = [Tool.model_validate(tool) for tool in asked.tools] if asked.calls else []
        return grammar_for(asked.format, tools, getattr(self._parser, "call_form", None))

    async def _begin(self, asked: ModelRequest) -> Call:
        """One at a time. Cancelled, it ends when its thread does, and the call was not made."""
        begun: list[Call] = []

        def ask() -> None:
            begun.append(self.conversation.ask(asked.messages, asked.tools, retry=asked.retry))

        async with self._asking:
            try:
                await off_loop(ask, is_large=asked.is_large)
            except asyncio.CancelledError:
                for call in begun:
                    if call.number not in self._answers:
                        self.conversation.withdraw(call)
                raise
            return begun[0]

    def _note_overruled(self, asked: Mapping[str, float | str]) -> None:
        for name, value in asked.items():
            if value != getattr(self._sampling, name, None):
                kept = self.overruled.setdefault(name, [])
                if value not in kept and len(kept) < MOST_OVERRULED:
                    kept.append(value)

    async def _replay(self, answer: Answer) -> AsyncGenerator[Answer, None]:
        async with answer.changed:
            await answer.changed.wait_for(lambda: answer.finish is not None or answer.failed)
        if answer.failed:
            raise ServerUnavailable("the call that this one repeats was aborted: ask again")
        yield answer

    async def _sample(self, call: Call, asked: ModelRequest) -> AsyncGenerator[Answer, None]:
        prompt = call.prompt_ids
        room = self._engine.context - len(prompt)
        if room < 1:
            self.conversation.withdraw(call)
            raise ContextTooLong(
                f"This model's maximum context length is {self._engine.context} tokens. However, your messages "
                f"resulted in {len(prompt)} tokens. Please reduce the length of the messages."
            )
        answer, decoding = Answer(call, self._template.codec.decode), Decoding(self._template.text)
        if self.steps is not None:
            answer.key = key_of(self.role, prompt, asked.stop, call.grammar and call.grammar.model_dump())
        answer.kept = await self._take_kept(answer)
        began = time.monotonic()
        self._answers[call.number] = answer
        self._at_work += 1
        self._idle.clear()
        try:
            most = min(room, asked.max_tokens or MOST_TOKENS, self.budget.tokens_left or room)
            stop = select_for_engine(asked.stop)
            kept = answer.kept
            name = None
            if self.steps is not None and kept is None:
                answer.place, name = self.steps.begin_call(answer.key)
            source = kept.tokens() if kept else self._engine.sample(prompt, most, stop, call.grammar, name)
            coming = self._coming(answer, source)
            told = asked.streamed and not asked.stop
            news: AsyncGenerator[object, None] = in_batches(coming) if told else coming
            async with aclosing(news):
                async for _ in news:
                    if self._has_stopped(answer, decoding, asked):
                        break
                    yield answer
            self._end(answer, asked)
        finally:
            self._at_work -= 1
            if not self._at_work:
                self._idle.set()
            if not answer.tokens:
                call.seconds = time.monotonic() - began
            await self._settle(answer)
        yield answer

    async def _take_kept(self, answer: Answer) -> Sampled | None:
        """Return the step that was kept of this call. Raises Diverged, which ends the rollout, and BudgetSpent."""
        try:
            self.budget.check_open()  # calls beside it may have had the last token
            return await self.steps.take(Sampled, answer.key) if self.steps is not None else None
        except BaseException as error:
            self.conversation.withdraw(answer.call)
            if isinstance(error, Diverged):
                self.budget.end(str(error))
            raise

    async def take_tool_call(self, key: str) -> ToolCalled | None:
        """Return what this call of a tool brought before; None where it is to be made. Raises Diverged."""
        if self.steps is None:
            return None
        try:
            return await self.steps.take(ToolCalled, key)
        except Diverged as error:
            self.budget.end(str(error))
            raise

    async def ask_person(self, question: str, options: Sequence[str]) -> Answered | None:
        """Return a person's answer; None where it is waited for, which ends this run of the program.

        Raises Diverged, which ends the rollout, and NotKept.
        """
        if self.steps is None:
            raise NotKept("nobody can be asked here: a runner of the fleet has to run this program")
        self.budget.check_open()
        try:
            answer = await self.steps.ask(question, options)
        except Diverged as error:
            self.budget.end(str(error))
            raise
        if answer is None:
            self.budget.end("it waits for a person")
        return answer

    async def _coming(self, answer: Answer, source: AsyncGenerator[Token, None]) -> AsyncGenerator[Token, None]:
        """Puts each token into the answer, until the budget is spent."""
        began = time.monotonic()
        async with aclosing(source):
            async for token in source:
                answer.tokens.append(token)
                answer.call.seconds = time.monotonic() - began
                self.budget.take_token()
                yield token
                if self.budget.says is not None:
                    break

    def _has_stopped(self, answer: Answer, decoding: Decoding, asked: ModelRequest) -> bool:
        """Parse the answer as far as it goes, if it is told. Return whether a stop string was said by now."""
        if not (asked.stop or asked.streamed):
            return False
        stop, text = asked.stop, decoding.add(*(token.id for token in answer.tokens[decoding.count :]))
        found = bool(find_stops(text, stop))
        if not found:
            answer.parsed = self._parser_for(asked).parse(text[: len(text) - count_held_back(text, stop)], whole=False)
        return found

    def _end(self, answer: Answer, asked: ModelRequest) -> None:
        ids = [token.id for token in answer.tokens]
        text = self._template.text(ids)
        told, answer.stopped_at = cut_at_stop(text, asked.stop)
        parsed = self._parser_for(asked).parse(told, whole=True)
        if not {name for name, _ in parsed.calls} <= {tool["function"].get("name") for tool in asked.tools}:
            parsed = PlainParser().parse(told, whole=True)  # it calls what was not offered: that is text
        answer.parsed = replace(parsed, calls=parsed.calls[:1]) if asked.one_call else parsed
        # the same where the answer is given again from a step: a template may write the ids
        answer.call_ids = [
            f"call_{key_of(answer.call.prompt_ids, ids, number)[:24]}" for number in range(len(answer.parsed.calls))
        ]
        answer.finish = "stop" if answer.stopped_at is not None or self._template.ends_itself(ids) else "length"

    def _parser_for(self, asked: ModelRequest) -> Parser:
        """Return the parser. Who offers no tools, or wants none called, gets text for what looks like a call."""
        return self._parser if asked.tools and asked.calls else PlainParser()

    async def _settle(self, answer: Answer) -> None:
        ids, logprobs = [token.id for token in answer.tokens], [token.logprob for token in answer.tokens]
        if answer.finish is not None and ids:
            if answer.kept is not None:
                answer.call.seconds = answer.kept.seconds
            elif self.steps is not None and answer.place is not None:
                self.steps.add(Sampled(answer.key, ids, logprobs, answer.call.seconds or 0.0, answer.place))
            self.conversation.answer(answer.call, write_message(answer), ids, logprobs)
        else:
            self.conversation.abort(answer.call, ids, logprobs)
            if self.steps is not None and answer.place is not None:
                self.steps.give_up_call(answer.key, answer.place)
            answer.failed = True
            del self._answers[answer.call.number]
        async with answer.changed:
            answer.changed.notify_all()
