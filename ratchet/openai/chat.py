"""Chat completions in OpenAI's shapes: what its clients send and read, and no more than is honoured.

A parameter that would change the answer and is not honoured may be there only with a value that asks for nothing (null,
0, false, [], "none"). What is known and harmless is taken and has no effect: name, store, service_tier,
parallel_tool_calls, prompt_cache_key, prompt_cache_retention, safety_identifier.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from schemas.api.numbers import JSON_NUMBER
from schemas.messages.base import Identifier, Timestamp
from schemas.messages.response import FinishReason


def _not_supported(why: str, *nothing: Any) -> BeforeValidator:
    """Takes null and the values of `nothing`, which ask for none of it."""

    def refuse(value: Any) -> None:
        if value is not None and value not in nothing:
            raise PydanticCustomError("not_supported", "this fleet does not do that: {why}", {"why": why})

    return BeforeValidator(refuse)


NoTools = Annotated[None, _not_supported("its agents answer with text and call no tools", [], "none")]
NoSeed = Annotated[None, _not_supported("answers are batched with others, so a seed would not repeat them")]
NoStop = Annotated[None, _not_supported("answers end where the model ends them, or at max_tokens", [])]
NoLogprobs = Annotated[None, _not_supported("log-probabilities are logged for training, not told")]
NoMedia = Annotated[None, _not_supported("its agents read and write text")]
NoEffort = Annotated[None, _not_supported("how long a model thinks or writes is not set by a request")]
NoGuess = Annotated[None, _not_supported("there is no predicted output")]
Zero = Annotated[float, Field(ge=0, le=0, strict=True)]
Count = Annotated[int, Field(ge=1), JSON_NUMBER]
Choices = Annotated[int, Field(ge=1, le=64), JSON_NUMBER]
Temperature = Annotated[float, Field(ge=0, le=5, strict=True)]
TopP = Annotated[float, Field(gt=0, le=1, strict=True)]


class Given(BaseModel):
    """What a client sends: an unknown field is refused, so that nothing is silently without effect."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TextPart(Given):
    type: Literal["text"]
    text: str


EMPTY_IF_ASSISTANT: JsonDict = {
    "anyOf": [
        {"properties": {"role": {"const": "assistant"}}},
        {"properties": {"content": {"type": ["string", "array"]}}, "required": ["content"]},
    ]
}


class ChatTurn(Given):
    """A turn of the conversation. An answer of this API may be sent back as it is; one without content is empty."""

    model_config = ConfigDict(json_schema_extra=EMPTY_IF_ASSISTANT)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(min_length=1)] | None = None
    name: str | None = Field(None, description="No effect: chat templates have no names of speakers.")
    refusal: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: NoMedia = None
    function_call: NoTools = None
    tool_calls: NoTools = None

    @model_validator(mode="after")
    def check_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("missing", "only a turn of the assistant may be without content")
        return self


class StreamOptions(Given):
    include_usage: StrictBool | None = None
    include_obfuscation: StrictBool | None = None


class ResponseFormat(Given):
    type: Literal["text"]


class ChatMetadata(BaseModel):
    """Five names say something to the fleet; whatever else there is travels along in the task's metadata."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, str] = Field(init=False)

    task_id: Identifier | None = Field(None, description="Unique per task: the same id again is not run again.")
    session_id: Identifier | None = Field(None, description="As `user`: tasks of a session are given to the same arm.")
    task_type: Identifier | None = Field(None, description="Tasks of one type are compared with each other.")
    reference: str | None = Field(None, description="The right answer, for scorers that verify.")
    criteria: str | None = Field(None, description="What a good answer is, for scorers that judge.")
    source: str | None = Field(None, description="Where the task comes from.")
    timestamp: Timestamp | None = Field(None, description="When it was asked.")


class ChatRequest(Given):
    """`model` is an agent, or `<agent>@<version>` for one version of it. The answer is the best of a scored group."""

    model: str = Field(min_length=1, max_length=128)
    messages: Annotated[tuple[ChatTurn, ...], Field(min_length=1)]
    n: Choices | None = Field(None, description="So many of the group, the best first.")
    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_tokens: Count | None = Field(None, description="Within the fleet's own limit.")
    max_completion_tokens: Count | None = Field(None, description="The same; it goes before max_tokens.")
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    user: Identifier | None = Field(None, description="The session: its tasks are all given to the same arm.")
    metadata: ChatMetadata | None = None
    response_format: ResponseFormat | None = None
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None

    frequency_penalty: Zero | None = None
    presence_penalty: Zero | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: NoLogprobs = None
    seed: NoSeed = None
    stop: NoStop = None
    tools: NoTools = None
    tool_choice: NoTools = None
    functions: NoTools = None
    function_call: NoTools = None
    web_search_options: NoTools = None
    audio: NoMedia = None
    prediction: NoGuess = None
    reasoning_effort: NoEffort = None
    verbosity: NoEffort = None

    store: StrictBool | None = None
    service_tier: Literal["auto", "default"] | None = None
    parallel_tool_calls: StrictBool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None


class ChatAnswer(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: ChatAnswer
    finish_reason: FinishReason
    logprobs: None = None


class Usage(BaseModel):
    """Counted from the token ids in the log; 0 where the agent gave none. Completions: those of the choices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class RatchetExtras(BaseModel):
    """What OpenAI's shape has no place for. With `task_id` go GET /v1/tasks/{task_id} and POST /v1/feedback."""

    task_id: str
    agent_id: str
    adapter_version: str
    adapter_sha256: str | None
    score: float | None = Field(description="Of the first choice.")
    scores: list[float | None] = Field(description="Of each choice.")
    samples: list[int] = Field(description="Of each choice its index in the group, as feedback names it.")
    group_size: int = Field(description="Answers that were sampled.")
    sampled_tokens: int = Field(description="Of the whole group.")


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="<agent>@<version> that answered.")
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str | None = Field(description="Of the weights: the sha256 of the adapter, or the engine.")
    ratchet: RatchetExtras


class ChatDelta(BaseModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(BaseModel):
    index: int
    delta: ChatDelta
    finish_reason: FinishReason | None = None
    logprobs: None = None


class ChatChunk(BaseModel):
    """One event of a stream. The last but one of a stream with usage has no choices; the last is `[DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    system_fingerprint: str | None
    ratchet: RatchetExtras | None = Field(None, description="In the last chunk with choices.")


class ReplyMessage(BaseModel):
    """Of another server: as little is asked of it as is read."""

    content: Any = None
    refusal: Any = None


class ReplyChoice(BaseModel):
    message: ReplyMessage


class ChatReply(BaseModel):
    """A completion of another server."""

    choices: list[ReplyChoice] = Field(min_length=1)
