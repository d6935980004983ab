"""A result that a person rejects or edits: the program is run again, with what the person said as its next turn.

Each turn begins with the workspace that the one before left. The turns are one rollout: one conversation, one budget,
one time, and a patch against the task's workspace. A rollout that waited, or was cut off, goes through the turns before
again by its steps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ratchet.programs.task_input import as_text
from ratchet.rollouts.kept_steps import Answered, Diverged, KeptSteps, NotKept, Question
from ratchet.rollouts.recording import Ran
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.service.errors import one_line
from schemas.messages.response import MOST_SAID, Edited, Sample, SampleStatus
from schemas.messages.task import ChatMessage, Prompt
from services.runner.sandboxed import SandboxStart

QUESTION = "Is this result to be taken?"
SHOWN_CHARS = 8_000
"""Characters of an answer that the program is given again, from its end."""


@dataclass(frozen=True, slots=True)
class ApprovedStart:
    """Starts a program, and asks a person for its result. `approval`: of which results."""

    start: SandboxStart
    approval: str
    steps: KeptSteps

    async def __call__(self, rollout: RecordedRollout) -> Ran:
        began, took, start = time.monotonic(), 0.0, self.start
        while True:
            ran, tree = await start.run(rollout)
            took += ran.seconds or 0.0
            ran = replace(ran, seconds=took if ran.seconds is not None else None)
            if not asks_at_end(self.approval, ran, self.steps):
                return ran
            try:
                shown = (ran.text, ran.artifact.patch if ran.artifact else "")
                answer = await self.steps.ask(QUESTION, ("approve", "reject", "edit"), ends=True, shown=shown)
            except (Diverged, NotKept) as error:
                return replace(ran, status="lost", says=str(error))
            if answer is None:
                return ran
            if not goes_on(answer):
                status, says = end_by_person(QUESTION, answer)
                return replace(ran, status=status or ran.status, says=says or ran.says)
            if answer.decision == "edit":
                rollout.edited = edited_answer(rollout, ran.text, answer.text)
            prompt = next_turn(start.work.input, ran.text, answer)
            if unfit := start.program.unfit(prompt):
                return replace(ran, status="failed", says=f"what a person said can't be given to it: {unfit}")
            left_s = self.start.seconds - (time.monotonic() - began)
            work = start.work.model_copy(update={"input": prompt})
            start = replace(start, work=work, seconds=left_s, begins=tree)


def asks_at_end(approval: str, ran: Ran, steps: KeptSteps) -> bool:
    """Tell whether a person is asked for a result before it is scored."""
    if ran.status != "finished" or steps.waits is not None or approval == "never":
        return False
    return approval == "before-finish" or bool(ran.artifact and (ran.artifact.patch or ran.artifact.left_out))


def goes_on(answer: Answered) -> bool:
    """Tell whether a person's answer to a result is the program's next turn; a rejection without a text is the end."""
    return answer.decision in ("reject", "edit") and bool(answer.text.strip())


def ends_rollout(question: Question, answer: Answered) -> bool:
    """Tell whether a rollout is at its end with this answer to its newest question."""
    return answer.decision == "expired" or (question.ends and not goes_on(answer))


def end_by_person(question: str, answer: Answered) -> tuple[SampleStatus | None, str | None]:
    """Return how a rollout ends by the answer to its last question, with a sentence; nothing where it is taken."""
    if answer.decision == "approve":
        return None, None
    if answer.decision == "expired":
        return "limit", one_line(f"nobody answered in time: {question}", MOST_SAID)
    return "failed", one_line(f"a person rejected it: {answer.text}".removesuffix(": "), MOST_SAID)


def ended_by_person(sample: Sample, question: Question, answer: Answered) -> Sample:
    """Return a rollout as it stands, as the answer to its last question has it."""
    status, says = end_by_person(question.question, answer)
    return sample if status is None else sample.model_copy(update={"status": status, "says": says})


def next_turn(prompt: Prompt, answer: str, said: Answered) -> Prompt:
    """Return the input of the next turn: what was asked, what the program answered, and what the person said."""
    says = "A person rejected this" if said.decision == "reject" else "A person changed this answer to the following"
    shown = answer if len(answer) <= SHOWN_CHARS else f"…{answer[-SHOWN_CHARS:]}"
    if isinstance(prompt, str):
        return f"{as_text(prompt)}\n\nYour answer was:\n{shown}\n\n{says}:\n{said.text}"
    turns = (ChatMessage(role="assistant", content=shown), ChatMessage(role="user", content=f"{says}:\n{said.text}"))
    return (*prompt, *turns)


def edited_answer(rollout: RecordedRollout, answer: str, text: str) -> Edited | None:
    """Return what the model was asked and should have said; None where the answer is not what it said last."""
    last = max(rollout.calls, key=lambda call: call.number, default=None)
    if last is None or last.message is None or last not in rollout.conversation.calls:
        return None
    is_whole = str(last.message.get("content") or "").strip() == answer.strip()
    return Edited(prompt_ids=tuple(last.prompt_ids), text=text) if is_whole else None
