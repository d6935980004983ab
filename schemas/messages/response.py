"""Response: what an agent answered. The draft's four fields suffice; the orchestrator completes such a one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from schemas.messages.base import Identifier, Message, Metadata, Record, Seconds, Sha256, Timestamp, absent
from schemas.messages.work import Sampling, SpanGrammar, Work
from schemas.messages.workspace import Artifact

FinishReason = Literal["stop", "length"]
BreakKind = Literal["rewritten", "tools_changed", "parallel", "aborted", "retokenised"]
SampleStatus = Literal["finished", "failed", "limit", "lost", "cancelled"]
MOST_SAID = 1000
"""Characters of the sentence that says how a rollout ended."""
MOST_COUNTED = 2**53 - 1
"""The most calls, tokens, breaks or seconds: no rollout has so many, and every reader of JSON can hold the number."""
AT_MOST: dict[str, JsonValue] = {"maximum": MOST_COUNTED}
"""The bounds of what is published. They apply where messages are admitted; the log is read whatever it holds."""


class ToolCall(Record):
    name: str
    arguments: str = Field("", description="As the model wrote them, JSON if it was right.")


class Turn(Record):
    """One message of a conversation, for people to read."""

    role: str
    content: str = ""
    reasoning: str | None = Field(None, exclude_if=absent)
    tool_calls: tuple[ToolCall, ...] = Field((), exclude_if=lambda calls: not calls)
    span: int | None = Field(
        None, ge=0, exclude_if=absent, description="Which span of its segment it was sampled as; absent: it was given."
    )
    seconds: Seconds | None = Field(
        None, exclude_if=absent, description="From when the model was asked for it to its last token."
    )


class Segment(Record):
    """Tokens of a conversation as a model was given and sampled them: a linear conversation is one segment."""

    prompt_ids: tuple[int, ...] = Field(min_length=1)
    completion_ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...] = Field(
        min_length=1, description="From and to before which of the completion's tokens were sampled, in order."
    )
    logprobs: tuple[float, ...] = Field(
        description="Natural log of the probability each sampled token was sampled with; of the others there is none."
    )
    broke: BreakKind | None = Field(
        None, exclude_if=absent, description="Why it does not go on from what came before; absent for the first."
    )
    role: Identifier | None = Field(
        None, exclude_if=absent, description="The role of the program that sampled all of its spans."
    )
    adapter_version: str | None = Field(
        None, exclude_if=absent, description="Of the role's agent: what its spans were sampled with."
    )
    grammars: tuple[SpanGrammar, ...] = Field(
        (),
        exclude_if=lambda grammars: not grammars,
        description="Those that spans were sampled under; a span that none of them names was free.",
    )
    turns: tuple[Turn, ...] = Field(
        (), exclude_if=lambda turns: not turns, description="Its messages, without those an earlier segment has."
    )

    @model_validator(mode="after")
    def _spans_of_the_completion(self) -> Self:
        end = 0
        for start, stop in self.spans:
            if not end <= start < stop <= len(self.completion_ids):
                raise ValueError(f"the span {start} to {stop} is empty, out of order or outside the completion")
            end = stop
        if len(self.logprobs) != self.sampled_tokens:
            raise ValueError("logprobs and the sampled tokens differ in number")
        return self

    @property
    def sampled_tokens(self) -> int:
        return sum(stop - start for start, stop in self.spans)

    @property
    def given_tokens(self) -> int:
        """The tokens of the completion that were given, between those that were sampled."""
        return len(self.completion_ids) - self.sampled_tokens

    def tokens_of(self, turn: Turn) -> int | None:
        """That were sampled as it; None for a message that was given, or one that names a span that is not there."""
        if turn.span is None or turn.span >= len(self.spans):
            return None
        start, stop = self.spans[turn.span]
        return stop - start

    def tokens_before(self, turn: Turn) -> int | None:
        """Tokens that the model was given for it, with what it had seen before; None as for `tokens_of`."""
        if turn.span is None or turn.span >= len(self.spans):
            return None
        return len(self.prompt_ids) + self.spans[turn.span][0]


class RoleUsage(Record):
    """The part of a rollout's cost that one role took, and the adapter that answered it."""

    adapter_version: str
    calls: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    prompt_tokens: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    sampled_tokens: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)


class Usage(Record):
    """The cost of a rollout: calls of the model, tokens it was given (with what it had seen before) and sampled."""

    calls: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    prompt_tokens: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    sampled_tokens: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    breaks: dict[BreakKind, Annotated[int, Field(strict=True, json_schema_extra=AT_MOST)]] = Field(
        default_factory=dict, description="How often each kind split it."
    )
    normalised: int = Field(
        0,
        ge=0,
        strict=True,
        json_schema_extra=AT_MOST,
        description="Answers that came back otherwise written, and were known again.",
    )
    replayed: int = Field(
        0,
        ge=0,
        strict=True,
        json_schema_extra=AT_MOST,
        description="Requests that were sent again and got the stored answer.",
    )
    turns: int | None = Field(
        None,
        ge=0,
        strict=True,
        exclude_if=absent,
        json_schema_extra=AT_MOST,
        description="Calls in the longest of its conversations, each going on from the one before.",
    )
    seconds: Annotated[Seconds, Field(strict=True, json_schema_extra=AT_MOST)] | None = Field(
        None, exclude_if=absent, description="From its start to its end, the wait for its turn left out."
    )
    overruled: dict[str, tuple[Annotated[float, Field(strict=True)] | str, ...]] = Field(
        default_factory=dict,
        exclude_if=lambda asked: not asked,
        description="What calls asked of the sampling and did not get, as it is the Work's: the first values of each.",
    )
    roles: dict[Identifier, RoleUsage] = Field(
        default_factory=dict,
        exclude_if=lambda roles: not roles,
        description="Of a program with roles: the part of each; together they are the whole.",
    )

    @property
    def most(self) -> float:
        """The largest of its numbers."""
        counts = (self.calls, self.prompt_tokens, self.sampled_tokens, self.normalised, self.replayed, self.turns or 0)
        of_roles = (max(one.calls, one.prompt_tokens, one.sampled_tokens) for one in self.roles.values())
        return max(*counts, *self.breaks.values(), self.seconds or 0, *of_roles)


class ForeignPart(Record):
    """The part of a rollout that a model of another provider played: text alone, from which nothing is learned."""

    role: Identifier
    model: str = Field(description="Provider and model, as `openai:gpt-5`.")
    calls: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    prompt_tokens: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    sampled_tokens: int = Field(0, ge=0, strict=True, json_schema_extra=AT_MOST)
    cost_micros: int | None = Field(
        None,
        ge=0,
        strict=True,
        exclude_if=absent,
        json_schema_extra=AT_MOST,
        description="In millionths of the currency of the file of prices, if that has the model.",
    )
    turns: tuple[Turn, ...] = Field((), exclude_if=lambda turns: not turns, description="What was said, in order.")


class ToolAudit(Record):
    """The calls of our tools in a rollout, as the recorder wrote them down outside of its sandbox."""

    operations: dict[str, int] = Field(default_factory=dict, description="Calls that were begun, by operation.")
    failed: int = Field(0, ge=0, description="Calls that failed, or were cancelled.")
    refused: int = Field(0, ge=0, description="Calls that were not made: by the policy, or for their arguments.")
    changed: tuple[str, ...] = Field((), description="Paths of the workspace that calls changed, the first 200.")
    commits: tuple[str, ...] = Field((), description="Commits that were made, the first 200.")
    count: int = Field(ge=1, description="Lines of the audit.")
    sha256: Sha256 = Field(description="Of the newest line, which stands for all before it.")
    lines: tuple[str, ...] = Field(
        (),
        exclude_if=lambda lines: not lines,
        description="The lines, each chained to the one before; the first 64 KB of them. A Result has none.",
    )


class Edited(Record):
    """A person's edit of an answer: what the model was asked, and what it should have said."""

    prompt_ids: tuple[int, ...] = Field(min_length=1)
    text: str = Field(min_length=1)


class Sample(Record):
    """One sampled answer. `completion_ids` and `logprobs` have one entry per sampled token, the end token included.

    A conversation of several calls has `segments` instead: `completion_ids` and `logprobs` are absent, so that who
    does not know segments learns nothing from it.
    """

    text: str
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = Field(
        None, description="Natural log of the probability each token was actually sampled with."
    )
    finish_reason: FinishReason | None = None
    stopped_at: str | None = Field(
        None, exclude_if=absent, description="Of the strings of `sampling.stop` the one that it ended before."
    )
    segments: tuple[Segment, ...] | None = Field(
        None, min_length=1, description="Of a conversation: every sampled token in exactly one of them."
    )
    status: SampleStatus | None = Field(
        None,
        description="How a rollout ended: by itself (also if absent), by a fault of the program, at a limit, lost by "
        "a failure of ours, or cancelled since another answer had passed; from the last two nothing is learned.",
    )
    says: str | None = Field(
        None,
        max_length=MOST_SAID,
        exclude_if=absent,
        description="Of a rollout that did not end by itself: why, such as its exit code and the last it wrote to "
        "stderr, or the limit that it met.",
    )
    ended_at: Timestamp | None = Field(
        None, exclude_if=absent, description="When a rollout ended, where the first that passes is to be chosen."
    )
    program: Identifier | None = Field(None, description="What made the rollout.")
    usage: Usage | None = None
    artifact: Artifact | None = Field(None, exclude_if=absent, description="What it left in its workspace.")
    tool_audit: ToolAudit | None = Field(None, exclude_if=absent, description="What it did with our tools.")
    foreign: tuple[ForeignPart, ...] | None = Field(
        None, exclude_if=absent, description="The roles that models of other providers played."
    )
    edited: Edited | None = Field(
        None, exclude_if=absent, description="What a person had an answer of it be: a demonstration, which teaches."
    )
    token_texts: tuple[str, ...] | None = Field(
        None, exclude_if=absent, description="Of each of completion_ids its text, where the Work asks for them."
    )

    @property
    def sampled_tokens(self) -> int | None:
        """None where they were not told."""
        return sampled_tokens(self.completion_ids, self.segments)

    @model_validator(mode="after")
    def _one_logprob_per_token(self) -> Self:
        if self.segments is not None and (self.completion_ids is not None or self.logprobs is not None):
            raise ValueError("a sample with segments has its tokens there, and no completion_ids or logprobs besides")
        if self.logprobs is not None and len(self.logprobs) != len(self.completion_ids or ()):
            raise ValueError("logprobs and completion_ids differ in length")
        if self.token_texts is not None and len(self.token_texts) != len(self.completion_ids or ()):
            raise ValueError("token_texts and completion_ids differ in length")
        return self


def sampled_tokens(completion_ids: tuple[int, ...] | None, segments: tuple[Segment, ...] | None) -> int | None:
    """Count the tokens of one sample, in either form; None where it has neither."""
    if segments is not None:
        return sum(segment.sampled_tokens for segment in segments)
    return None if completion_ids is None else len(completion_ids)


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

    @model_validator(mode="after")
    def _took_what_can_be_taken(self) -> Self:
        """Check what is admitted; the log is read whatever it holds."""
        for number, sample in enumerate(self.samples):
            if sample.usage is not None and sample.usage.most > MOST_COUNTED:
                raise ValueError(f"the usage of sample {number} has a number above {MOST_COUNTED:,}")
        return self
