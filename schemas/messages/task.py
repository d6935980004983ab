"""Task: what a user asks. Three drafted fields are enough; the rest refines how it is answered and judged."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

from schemas.messages.base import (
    AdapterVersion,
    AgentId,
    Identifier,
    KeptApart,
    Message,
    Metadata,
    Record,
    StopStrings,
    Timestamp,
    absent,
)
from schemas.messages.workspace import Workspace


class TaskCancelled(Message):
    """Broadcast to the agent and the runners that may have the task's Work, once its end is in the log."""

    TYPE: ClassVar[str] = "task_cancelled.v1"

    task_id: Identifier
    agent_id: AgentId
    metadata: Metadata = Metadata()


class CalledFunction(Record):
    name: str
    arguments: str = Field("", description="JSON, as the model wrote it.")


class MessageToolCall(Record):
    """A tool call of an earlier turn, in OpenAI's form."""

    id: str = ""
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Record):
    """`tool`: what a tool call brought, named by the call's id."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[MessageToolCall, ...] | None = Field(
        None, exclude_if=absent, description="Of an assistant's turn."
    )
    tool_call_id: str | None = Field(None, exclude_if=absent, description="Of a tool's turn: which call it answers.")

    @property
    def readable_text(self) -> str:
        """The message for people and judges: the content, then each call on a line of its own."""
        calls = (f"{call.function.name}({call.function.arguments})" for call in self.tool_calls or ())
        return "\n".join([*([self.content] if self.content or not self.tool_calls else []), *calls])


class ToolFunction(Record):
    name: str = Field(min_length=1, max_length=128)
    description: str | None = Field(None, exclude_if=absent)
    parameters: dict[str, Any] | None = Field(None, exclude_if=absent, description="JSON Schema of the arguments.")


class Tool(Record):
    """A function that the model may ask for, in OpenAI's form. Whoever sent the task runs it."""

    type: Literal["function"] = "function"
    function: ToolFunction


class AnswerFormat(Record):
    """The form that an answer must have: any JSON object, JSON of a schema, or a call of one of the task's tools."""

    type: Literal["json_object", "json_schema", "tool_call"]
    json_schema: dict[str, Any] | None = Field(
        None, exclude_if=absent, description="Of json_schema: the JSON Schema that the answer fits."
    )
    tool: str | None = Field(
        None, exclude_if=absent, description="Of tool_call: the tool that is called; any of them if absent."
    )


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("should be a number, not true or false")
    return value


NO_BOOLEAN = BeforeValidator(_no_boolean)
"""Pydantic would take `true` for 1. Last in an Annotated, after the bounds, which it would hide from the schema."""


class Constraints(Record):
    """The most that each rollout of a task may take and call. They lower what the program's declaration allows.

    One that is not known is refused, also by an older reader: it would not be held.
    """

    model_config = ConfigDict(extra="forbid")

    tools: Annotated[tuple[Identifier, ...], Field(max_length=128)] | None = Field(
        None,
        exclude_if=absent,
        description="The tools of Ratchet that it may call, of those that its program may; none if empty.",
    )
    calls: Annotated[int, Field(ge=1), NO_BOOLEAN] | None = Field(None, exclude_if=absent, description="Of the model.")
    tokens: Annotated[int, Field(ge=1), NO_BOOLEAN] | None = Field(
        None, exclude_if=absent, description="That the model samples for it, in all calls."
    )
    seconds: Annotated[float, Field(gt=0), NO_BOOLEAN] | None = Field(
        None, exclude_if=absent, description="From its start to its end."
    )


Prompt = str | Annotated[tuple[ChatMessage, ...], Field(min_length=1)]


Reference = Annotated[
    str, Field(coerce_numbers_to_str=True), WithJsonSchema({"type": ["string", "number"]}, mode="validation")
]
"""A number is taken as its text."""


Select = Literal["best", "majority", "judge", "first-passing"]
"""Ways to choose the user's answer among the samples (ratchet/logs/best_answer.py)."""

OwnQueue = Annotated[str, StringConstraints(max_length=255, pattern=r"^[A-Za-z0-9_.:-]{0,60}?reply\.[A-Za-z0-9_.:-]+$")]


class Task(Message):
    """A task for the fleet. The same `task_id` sent again returns the stored result and is not run again."""

    TYPE: ClassVar[str] = "task.v1"

    task_id: Identifier = Field(description="Unique per task; also the idempotency key.")
    input: Prompt = Field(description="The prompt: text, or chat messages.")
    metadata: Metadata = Metadata()
    agent_id: AgentId | None = Field(None, description="Which agent answers; the fleet's default one if absent.")
    reference: Reference | None = Field(
        None, description="The right answer, for scorers that verify. Agents never see it in the prompt."
    )
    criteria: str | None = Field(None, description="What a good answer is, for scorers that judge.")
    samples: Annotated[int, Field(ge=1, le=64), NO_BOOLEAN] | None = Field(
        None, description="Group size: answers sampled; the user gets one of them."
    )
    select: Select | None = Field(
        None,
        exclude_if=absent,
        description="Which of them: the best-scored (also if absent), what most of them say, what the judge prefers "
        "among the best, or the first in time that passes, at which the others are called off. Where it is named, the "
        "deadline takes the best of what is scored by then.",
    )
    pass_score: Annotated[float, Field(gt=0.0, le=1.0), NO_BOOLEAN] | None = Field(
        None, exclude_if=absent, description="Of `first-passing`: the score that passes; 1.0 if absent."
    )
    temperature: Annotated[float, Field(ge=0.0, le=5.0), NO_BOOLEAN] | None = Field(
        None, description="Of the sampling; the fleet's if absent."
    )
    top_p: Annotated[float, Field(gt=0.0, le=1.0), NO_BOOLEAN] | None = Field(
        None, description="Nucleus sampling; the fleet's if absent."
    )
    max_tokens: Annotated[int, Field(ge=1), NO_BOOLEAN] | None = Field(
        None, description="Tokens an answer may have, within the fleet's limit."
    )
    stop: StopStrings | None = Field(
        None, exclude_if=absent, description="Answers end before any of these strings, which is not in their text."
    )
    adapter_version: AdapterVersion | None = Field(
        None, description="Have this version answer: the primary, candidate, previous or base. No experiment counts it."
    )
    evaluation: Identifier | None = Field(
        None, description="Of an evaluation of that name: logged, counted by no training or experiment; no Result."
    )
    role_versions: dict[Identifier, AdapterVersion] | None = Field(
        None,
        exclude_if=absent,
        description="With `evaluation`, of an agent whose programs have roles: which version plays each; the primary "
        "where none is named.",
    )
    tools: Annotated[tuple[Tool, ...], Field(min_length=1, max_length=128)] | None = Field(
        None,
        exclude_if=absent,
        description="Functions the model is told of through its chat template; its answer holds the calls as text.",
    )
    format: AnswerFormat | None = Field(
        None,
        exclude_if=absent,
        description="The form that answers must have. Tokens that would leave it can't be sampled.",
    )
    needs_token_texts: bool | None = Field(
        None, exclude_if=absent, description="Have each sample say the text of each of its tokens."
    )
    needs_usage: bool | None = Field(
        None, exclude_if=absent, description="Have the Result say how many tokens the task took (`usage`)."
    )
    workspace: Workspace | None = Field(
        None, exclude_if=absent, description="Files that the answer changes; its scorers may judge what it leaves."
    )
    programs: Annotated[tuple[Identifier, ...], Field(min_length=1, max_length=64)] | None = Field(
        None,
        exclude_if=absent,
        description="Which of the agent's programs answer, dealt to the samples in turn; all of them if absent.",
    )
    registered_agent: AgentId | None = Field(
        None,
        exclude_if=absent,
        description="An agent that is registered with the manager, whose program answers with the model of `agent_id`. "
        "The manager sets it.",
    )
    kept_apart: KeptApart = Field(
        None,
        exclude_if=absent,
        description="It teaches nothing, and no experiment counts it. `research`: it teaches the versions of the "
        "research agent that answers it.",
    )
    approval: Literal["before-finish", "on-change", "never"] | None = Field(
        None,
        exclude_if=absent,
        description="Whether a person has to approve a program's result before it is scored: each, or those that "
        "changed the workspace; as the program is declared if absent.",
    )
    profile: Identifier | None = Field(
        None,
        exclude_if=absent,
        description="Which of the runner's profiles says what model plays each role of the program; the fleet's agents "
        "play all if absent. A task with one teaches nothing, and no experiment counts it.",
    )
    constraints: Constraints | None = Field(
        None,
        exclude_if=absent,
        description="The most that each rollout of a program may take; what the program is declared with, if less.",
    )
    task_type: Identifier | None = Field(None, description="Stratum: tasks of one type are compared with each other.")
    session_id: Identifier | None = Field(None, description="Tasks of one session are all given to the same arm.")
    priority: Annotated[int, Field(ge=0, le=9), NO_BOOLEAN] = Field(
        0, description="5 and above overtakes what waits below 5."
    )
    work_to: OwnQueue | None = Field(
        None,
        description="AMQP queue of the asker's that gets the Work in place of the agent's queue: who asks answers it "
        "itself, with the adapter that the Work names. Its name begins with `reply.`, behind the fleet's namespace.",
    )
    local_only: bool | None = Field(
        None, exclude_if=absent, description="Where the agent has a cascade: no other model than its own is asked."
    )
    deadline: Timestamp | None = Field(None, description="After this moment the task is answered as expired.")
