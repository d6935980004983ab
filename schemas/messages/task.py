"""Task: what a user asks. Three drafted fields are enough; the rest refines how it is answered and judged."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from schemas.messages.base import AdapterVersion, AgentId, Identifier, Message, Metadata, Record, Timestamp


class ChatMessage(Record):
    role: Literal["system", "user", "assistant"]
    content: str


Prompt = str | Annotated[tuple[ChatMessage, ...], Field(min_length=1)]


Reference = Annotated[
    str,
    Field(coerce_numbers_to_str=True),
    WithJsonSchema({"type": ["string", "number"]}, mode="validation"),
]
"""A number is taken as its text."""


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
    samples: int | None = Field(None, ge=1, le=64, description="Group size: answers sampled; the user gets the best.")
    temperature: float | None = Field(None, ge=0.0, le=5.0, description="Of the sampling; the fleet's if absent.")
    top_p: float | None = Field(None, gt=0.0, le=1.0, description="Nucleus sampling; the fleet's if absent.")
    max_tokens: int | None = Field(None, ge=1, description="Tokens an answer may have, within the fleet's limit.")
    adapter_version: AdapterVersion | None = Field(
        None, description="Have this version answer: the primary, candidate, previous or base. No experiment counts it."
    )
    evaluation: Identifier | None = Field(
        None, description="Of an evaluation of that name: logged, counted by no training or experiment; no Result."
    )
    task_type: Identifier | None = Field(None, description="Stratum: tasks of one type are compared with each other.")
    session_id: Identifier | None = Field(None, description="Tasks of one session are all given to the same arm.")
    priority: int = Field(0, ge=0, le=9, description="5 and above overtakes what waits below 5.")
    deadline: Timestamp | None = Field(None, description="After this moment the task is answered as expired.")
