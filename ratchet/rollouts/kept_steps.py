"""The steps of a rollout on disk, in order, and the answers from them when its program is run again.

A step is an answer of the model, a call of one of our tools, or a question to a person. A program that runs again asks
the same, and is answered from here until the steps are used up; then it goes on. So no token is sampled twice, and no
call of a tool is done twice, whether a person was waited for or the runner was killed. A program that asks something
else has diverged: its steps are worth nothing, and it begins anew.

What a program does by itself, without model and tools, it does again. Use it from one event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ratchet.rollouts.engine import Token
from ratchet.rollouts.providers import Reply
from ratchet.service.errors import EngineError
from ratchet.service.telemetry import Log
from schemas.messages.work import Decision

log = Log("runner")

MOST_BYTES = 64 * 1024 * 1024
"""The most that one rollout's steps take. One that has more is not run again from them."""
MOST_QUESTIONS = 100
HELD_S = 2.0
"""A call that the steps don't know waits so long for calls beside it to use the steps up."""


class Diverged(EngineError):
    """The program asks something else than when it ran before."""


class NotKept(EngineError):
    """The steps can't be kept, so nobody can be waited for."""


class _Step(msgspec.Struct, tag_field="step", omit_defaults=True, frozen=True):
    pass


class Sampled(_Step, tag="sampled", frozen=True):
    """An answer of the model. `key`: the sum of the role, the tokens that it was given and the form it was held to."""

    key: str
    ids: list[int]
    logprobs: list[float]
    seconds: float
    place: int = 0
    """Among the answers to what has the same key."""

    async def tokens(self) -> AsyncGenerator[Token, None]:
        for token, logprob in zip(self.ids, self.logprobs, strict=True):
            yield Token(token, logprob)


class ToolCalled(_Step, tag="tool", frozen=True):
    """A call of a tool: what it answered, and each file that it changed as it was afterwards (tools/changes.py)."""

    key: str
    answer: dict[str, Any]
    changes: dict[str, Any] = {}


class ForeignReply(_Step, tag="foreign", frozen=True):
    """An answer of another provider's model, as text. `key`: the sum of the role, the model and what it was asked."""

    key: str
    reply: Reply


class Audited(_Step, tag="audited", frozen=True):
    """A line of the audit of the tools (tool_audit.py)."""

    line: str


class Question(_Step, tag="question", frozen=True):
    """`ends`: it is asked once the program has ended, whether its result is taken."""

    key: str
    approval_id: str
    question: str
    options: tuple[str, ...] = ()
    ends: bool = False


class Answered(_Step, tag="answered", frozen=True):
    approval_id: str
    decision: Decision
    text: str = ""


class Anew(_Step, tag="anew", frozen=True):
    """All before it is worth nothing. `times`: that it was so by now."""

    why: str
    times: int


Step = Sampled | ToolCalled | ForeignReply | Audited | Question | Answered | Anew
Kind = TypeVar("Kind", Sampled, ToolCalled, ForeignReply, Question)
_decoder = msgspec.json.Decoder(Step)


def key_of(*asked: Any) -> str:
    """Return the sum of what was asked."""
    return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:32]


class KeptSteps:
    """`name`: of the rollout, the same each time. `diverged` says why the program can't go on from the steps; `waits`
    is the question that it waits for in this run."""

    def __init__(self, path: Path, name: str, held_s: float = HELD_S) -> None:
        """Read what is there. Raises OSError."""
        self.diverged: str | None = None
        self.waits: Question | None = None
        self.times_anew = 0
        self.audited: list[str] = []
        """The lines of the audit of its tools, of runs before this one."""
        self._path = path
        self._name = name
        self._held_s = held_s
        self._trouble: str | None = None
        self._left: list[Sampled | ToolCalled | ForeignReply | Question] = []
        self._questions: dict[str, Question] = {}
        self._answers: dict[str, Answered] = {}
        self._places: dict[str, set[int]] = {}
        self._used = asyncio.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._bytes = self._read()

    def _read(self) -> int:
        """Take up the whole lines; a torn one at the end is cut off."""
        end = 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            try:
                if not line.endswith(b"\n"):
                    break
                self._take_up(_decoder.decode(line))
            except msgspec.DecodeError:
                break
            end += len(line)
        os.truncate(self._fd, end)
        return end

    def _take_up(self, step: Step) -> None:
        match step:
            case Anew():
                self._left, self.audited, self.times_anew = [], [], step.times
                self._questions, self._answers, self._places = {}, {}, {}
            case Audited():
                self.audited.append(step.line)
            case Answered():
                self._answers[step.approval_id] = step
            case Question():
                self._questions[step.approval_id] = step
                self._left.append(step)
            case Sampled():
                self._places.setdefault(step.key, set()).add(step.place)
                self._left.append(step)
            case _:
                self._left.append(step)

    @property
    def replays(self) -> bool:
        """True while there is something to answer from."""
        return bool(self._left)

    @property
    def open_question(self) -> Question | None:
        """The first question that has no answer."""
        return next((one for name, one in self._questions.items() if name not in self._answers), None)

    @property
    def last_answer(self) -> tuple[Question, Answered] | None:
        """The newest question, if it is answered."""
        newest = next(reversed(self._questions.values()), None)
        answer = newest and self._answers.get(newest.approval_id)
        return (newest, answer) if newest and answer else None

    @property
    def has_answers(self) -> bool:
        """True where a person's work would be lost by beginning anew."""
        return bool(self._answers)

    def answer(self, approval_id: str, decision: Decision, text: str) -> None:
        """Note a person's answer, once; one to a question that was not asked here is none."""
        if approval_id in self._questions and approval_id not in self._answers:
            step = Answered(approval_id, decision, text)
            self._answers[approval_id] = step
            self.add(step)

    def begin_call(self, key: str) -> tuple[int, str]:
        """Return the place of an answer that is sampled now, and the name of its call: the same in each run."""
        places = self._places.setdefault(key, set())
        place = next(number for number in range(len(places) + 1) if number not in places)
        places.add(place)
        return place, key_of(self._name, self.times_anew, key, place)

    def give_up_call(self, key: str, place: int) -> None:
        """It brought no answer: another one may have its place."""
        self._places[key].discard(place)

    async def take(self, kind: type[Kind], key: str) -> Kind | None:
        """Return the step that answers this, and use it up; None where the steps are used up. Raises Diverged."""
        while self._holds_back:
            for at, step in enumerate(self._left):
                if isinstance(step, kind) and step.key == key:
                    del self._left[at]
                    self._used.set()
                    self._used = asyncio.Event()
                    return step
            if self.diverged is None and not await self._others_go_on():
                self.diverged = f"it diverged: what it asks now it did not ask before ({kind.__name__.lower()})"
            if self.diverged is not None:
                raise Diverged(self.diverged)
        return None

    @property
    def _holds_back(self) -> bool:
        """True while a step is left. A question that waits is none: what was under way beside it was not kept."""
        return any(not isinstance(one, Question) or one.approval_id in self._answers for one in self._left)

    async def _others_go_on(self) -> bool:
        try:
            async with asyncio.timeout(self._held_s):
                await self._used.wait()
        except TimeoutError:
            return False
        return True

    async def ask(
        self, question: str, options: Sequence[str] = (), *, ends: bool = False, shown: Sequence[str] = ()
    ) -> Answered | None:
        """Return a person's answer; None where it is to be waited for: then the question is on disk. `shown`: what it
        is about. Where the record is lost, an answer is for the same question about the same alone.

        Raises Diverged, NotKept.
        """
        key = key_of("question", question, *options)
        found = await self.take(Question, key) or self._take_waiting(key)
        if found is None and len(self._questions) >= MOST_QUESTIONS:
            raise NotKept(f"this rollout has asked {MOST_QUESTIONS} questions, as many as it may")
        if found is None:
            number = f"{self.times_anew}/{len(self._questions)}"
            found = Question(key, key_of(self._name, number, key, shown)[:24], question, tuple(options), ends)
            self._questions[found.approval_id] = found
            self.add(found)
            if self._trouble is not None:
                raise NotKept(f"nobody can be waited for: {self._trouble}")
            os.fsync(self._fd)
        answer = self._answers.get(found.approval_id)
        if answer is None:
            self.waits = self.waits or found
        return answer

    def _take_waiting(self, key: str) -> Question | None:
        for at, step in enumerate(self._left):
            if isinstance(step, Question) and step.key == key:
                del self._left[at]
                return step
        return None

    def add(self, step: Step) -> None:
        """Write it down. What can't be written ends the keeping: such a rollout is run from its beginning again."""
        if self._trouble is not None:
            return
        line = msgspec.json.encode(step) + b"\n"
        try:
            if self._bytes + len(line) > MOST_BYTES:
                raise OSError(f"its steps take more than {MOST_BYTES:,} bytes")
            if os.write(self._fd, line) != len(line):
                raise OSError("the disk takes no more")
            self._bytes += len(line)
        except OSError as error:
            self.stop_keeping(str(error))

    def stop_keeping(self, why: str) -> None:
        """Keep no more steps, and drop those that were kept."""
        self._trouble = why
        os.ftruncate(self._fd, 0)
        log.warning("steps-not-kept", f"a rollout that is cut off would begin anew: {why}", path=str(self._path))

    def begin_anew(self, why: str) -> None:
        """Forget the steps: the program is run from its beginning."""
        os.ftruncate(self._fd, 0)
        self._bytes = 0
        self.times_anew += 1
        self.add(Anew(why, self.times_anew))
        self._left, self._questions, self._answers, self._places = [], {}, {}, {}
        self.audited = []
        self.diverged = self.waits = None

    def close(self) -> None:
        os.close(self._fd)

    def remove(self) -> None:
        """It has ended: nothing is to be answered from it again."""
        self._path.unlink(missing_ok=True)


def tool_key(asked: bytes) -> str:
    """Return the key of a call of a tool, as its name and arguments were sent."""
    return hashlib.sha256(b"tool " + asked).hexdigest()[:32]
