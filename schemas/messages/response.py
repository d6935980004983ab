"""Response: what an agent answered. The draft's four fields suffice; the orchestrator completes such a one."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.messages.base import Identifier, Message, Metadata, Record, Seconds, Sha256
from schemas.messages.work import Sampling, Work

FinishReason = Literal["stop", "length"]


class Sample(Record):
    """One sampled answer. `completion_ids` and `logprobs` have one entry per sampled token, the end token included."""

    text: str
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = Field(
        None, description="Natural log of the probability each token was actually sampled with."
    )
    finish_reason: FinishReason | None = None

    @model_validator(mode="after")
    def _one_logprob_per_token(self) -> Self:
        if self.logprobs is not None and len(self.logprobs) != len(self.completion_ids or ()):
            raise ValueError("logprobs and completion_ids differ in length")
        return self


class GenerationLatencies(Record):
    """Seconds: waiting in the work queue, and generating (batching included)."""

    queue_s: Seconds = 0.0
    generate_s: Seconds = 0.0
    attempts: int | None = Field(None, ge=1, description="Times it was tried; absent where the first did it.")


class Response(Message):
    """`response` is the first sample's text. `error` says why there is no sample, for failures that no retry mends."""

    TYPE: ClassVar[str] = "response.v1"

    task_id: Identifier
    response: str
    agent_id: Identifier
    metadata: Metadata = Metadata()
    samples: tuple[Sample, ...] = ()
    error: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    sampling: Sampling | None = None
    adapter_version: str | None = None
    adapter_sha256: Sha256 | None = None
    engine: str | None = None
    latencies: GenerationLatencies = GenerationLatencies()
    work: Work | None = Field(None, description="The Work it answers; absent in a draft-shaped Response.")

    @model_validator(mode="after")
    def _answers_its_own_work(self) -> Self:
        if self.work is not None and self.work.task_id != self.task_id:
            raise ValueError(f"answers task {self.task_id!r} but carries the work of {self.work.task_id!r}")
        return self
