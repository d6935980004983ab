"""Chat completions in OpenAI's shapes: what its clients send and read, and no more than is honoured.

What of a request is honoured, wished for in vain or refused is listed in honoured.py; a field that is refused may be
there with a value that asks for nothing (null, 0, [], "none").
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from ratchet.conversation.messages import join_parts
from ratchet.grammars.grammar import FormatRefused
from ratchet.openai.honoured import stop_strings, wishes
from ratchet.openai.tools import (
    REQUIRED,
    AnsweredCall,
    ChosenTool,
    Given,
    GivenCall,
    GivenTool,
    ToolChoice,
    not_supported,
    read_format,
    read_required_call,
)
from ratchet.openai.transport import RequestRefused
from schemas.messages.base import JSON_NUMBER, LONGEST_STOP, MOST_STOPS, Identifier, Timestamp, absent
from schemas.messages.response import FinishReason
from schemas.messages.task import AnswerFormat


def _stop(value: Any) -> tuple[str, ...]:
    try:
        return stop_strings(value)
    except ValueError as error:
        raise PydanticCustomError("stop", "{why}", {"why": str(error)}) from None


def _format(value: Any) -> Any:
    try:
        return value if isinstance(value, AnswerFormat) else read_format(value)
    except FormatRefused as error:
        raise PydanticCustomError("not_supported", "{why}", {"why": str(error)}) from None


NoFunctions = Annotated[None, not_supported("functions")]
NoFunctionCall = Annotated[None, not_supported("function_call")]
NoSearch = Annotated[None, not_supported("web_search_options")]
NoTopLogprobs = Annotated[None, not_supported("top_logprobs")]
NoMedia = Annotated[None, not_supported("audio")]
NoOtherMode = Annotated[None, not_supported("modalities")]
NoGuess = Annotated[None, not_supported("prediction")]
WISHED = "No effect: answers are the policy's own. Told of as `overruled` in `ratchet`."
Wish = Annotated[float, Field(strict=True)]
MOST_INT = 10**19
Whole = Annotated[int, Field(ge=-MOST_INT, le=MOST_INT), JSON_NUMBER]
ResponseFormat = Annotated[
    AnswerFormat | None,
    BeforeValidator(_format),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "null"},
                {"type": "object", "properties": {"type": {"enum": ["text", "json_object"]}}, "required": ["type"]},
                {
                    "type": "object",
                    "properties": {
                        "type": {"const": "json_schema"},
                        "json_schema": {
                            "type": "object",
                            "properties": {"schema": {"type": "object"}},
                            "required": ["schema"],
                        },
                    },
                    "required": ["type", "json_schema"],
                },
            ]
        },
        mode="validation",
    ),
]
Stop = Annotated[
    tuple[str, ...],
    BeforeValidator(_stop),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "maxLength": LONGEST_STOP},
                {"type": "array", "items": {"type": "string", "maxLength": LONGEST_STOP}, "maxItems": MOST_STOPS},
            ]
        },
        mode="validation",
    ),
]
Count = Annotated[int, Field(ge=1), JSON_NUMBER]
Choices = Annotated[int, Field(ge=1, le=64), JSON_NUMBER]
Temperature = Annotated[float, Field(ge=0, le=5, strict=True)]
TopP = Annotated[float, Field(gt=0, le=1, strict=True)]
ChatFinish = FinishReason | Literal["tool_calls"]


class TextPart(Given):
    type: Literal["text"]
    text: str


SAYS: JsonDict = {"type": ["string", "array"]}
CALLS_NOTHING: JsonDict = {"type": ["array", "null"], "maxItems": 0}
TURNS: JsonDict = {
    "anyOf": [
        {"properties": {"role": {"const": "assistant"}, "tool_call_id": {"type": "null"}}},
        {
            "properties": {
                "role": {"const": "tool"},
                "content": SAYS,
                "tool_calls": CALLS_NOTHING,
                "tool_call_id": {"type": "string", "minLength": 1},
            },
            "required": ["content", "tool_call_id"],
        },
        {
            "properties": {
                "role": {"enum": ["system", "developer", "user"]},
                "content": SAYS,
                "tool_calls": CALLS_NOTHING,
                "tool_call_id": {"type": "null"},
            },
            "required": ["content"],
        },
    ]
}


class ChatTurn(Given):
    """A turn of the conversation. An answer of this API may be sent back as it is; one without content is empty.

    A turn of a tool has what a call brought.
    """

    model_config = ConfigDict(json_schema_extra=TURNS)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Field(min_length=1)] | None = None
    name: str | None = Field(None, description="No effect: chat templates have no names of speakers.")
    refusal: None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None
    audio: NoMedia = None
    function_call: NoFunctionCall = None
    tool_calls: list[GivenCall] | None = None
    tool_call_id: str | None = Field(None, validate_default=True, description="Of a tool's turn: the call it answers.")
    reasoning_content: str | None = Field(None, description="Of the assistant: taken back, and not shown to the model.")

    @field_validator("tool_calls")
    @classmethod
    def _check_who_calls(cls, calls: list[GivenCall] | None, info: ValidationInfo) -> list[GivenCall] | None:
        if calls and info.data.get("role") != "assistant":
            raise PydanticCustomError("not_supported", "only a turn of the assistant calls tools")
        return calls

    @model_validator(mode="after")
    def check_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("missing", "only a turn of the assistant may be without content")
        return self

    @field_validator("tool_call_id")
    @classmethod
    def _check_which_call(cls, call_id: str | None, info: ValidationInfo) -> str | None:
        if bool(call_id) != (info.data.get("role", "tool" if call_id else None) == "tool"):
            raise PydanticCustomError("missing", "a turn of a tool, and no other, names the call it answers")
        return call_id

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else join_parts(part.text for part in self.content or ())


class StreamOptions(Given):
    include_usage: StrictBool | None = None
    include_obfuscation: StrictBool | None = None


class ChatMetadata(BaseModel):
    """Eight names say something to the fleet; whatever else there is travels along in the task's metadata."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, str] = Field(init=False)

    task_id: Identifier | None = Field(None, description="Unique per task: the same id again is not run again.")
    session_id: Identifier | None = Field(None, description="As `user`: tasks of a session are given to the same arm.")
    task_type: Identifier | None = Field(None, description="Tasks of one type are compared with each other.")
    reference: str | None = Field(None, description="The right answer, for scorers that verify.")
    criteria: str | None = Field(None, description="What a good answer is, for scorers that judge.")
    source: str | None = Field(None, description="Where the task comes from.")
    local_only: bool | None = Field(None, description="No big model is asked in the agent's place.")
    timestamp: Timestamp | None = Field(None, description="When it was asked.")


class ChatRequest(Given):
    """`model` is an agent, or `<agent>@<version>` for one version of it. The answer is the best of a scored group.

    Tools are the caller's: an answer may call them, and what they bring comes with the next request.
    """

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
    response_format: ResponseFormat = Field(None, description="The form of the answer; a JSON Schema holds it to one.")
    modalities: NoOtherMode = None

    frequency_penalty: Wish | None = Field(None, description=WISHED)
    presence_penalty: Wish | None = Field(None, description=WISHED)
    logit_bias: dict[str, float] | None = Field(None, description=WISHED)
    logprobs: StrictBool | None = Field(None, description="Of the sampled tokens, as they were sampled.")
    top_logprobs: NoTopLogprobs = None
    seed: Whole | None = Field(None, description=f"At temperature 0 nothing is drawn, and it holds. Else: {WISHED}")
    stop: Stop | None = Field(None, description="The answer ends before any of these.")
    top_k: Whole | None = Field(None, description=WISHED)
    tools: Annotated[list[GivenTool], Field(max_length=128)] | None = None
    tool_choice: ToolChoice = None
    functions: NoFunctions = None
    function_call: NoFunctionCall = None
    web_search_options: NoSearch = None
    audio: NoMedia = None
    prediction: NoGuess = None
    reasoning_effort: str | None = Field(None, description=WISHED)
    verbosity: str | None = Field(None, description=WISHED)

    store: StrictBool | None = None
    service_tier: str | None = None
    parallel_tool_calls: StrictBool | None = Field(None, description="False: an answer's first call is passed on.")
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None

    @property
    def overruled(self) -> dict[str, float | str]:
        """Wishes that it does not get."""
        wished = wishes(self.model_dump())
        if self.temperature == 0:
            wished.pop("seed", None)
        return wished

    @property
    def format(self) -> AnswerFormat | None:
        """The form that answers must have."""
        choice = self.tool_choice
        named = choice.function.name if isinstance(choice, ChosenTool) else None
        required = named is not None or choice == REQUIRED
        return AnswerFormat(type="tool_call", tool=named) if required else self.response_format

    @field_validator("tool_choice")
    @classmethod
    def _check_required_call(cls, choice: ToolChoice, info: ValidationInfo) -> ToolChoice:
        given = choice.model_dump() if isinstance(choice, ChosenTool) else choice
        tools = [tool.model_dump() for tool in info.data.get("tools") or ()]
        try:
            read_required_call(given, tools)
        except FormatRefused as error:
            raise PydanticCustomError("not_supported", "{why}", {"why": str(error)}) from None
        return choice

    @property
    def offered(self) -> list[GivenTool]:
        """The tools that the model may call."""
        return [] if self.tool_choice == "none" else self.tools or []


StopReason = Annotated[
    str | None, Field(exclude_if=absent, description="The string of `stop` that ended it, by vLLM's name.")
]


class ChatAnswer(BaseModel):
    """`content` is null where there are only calls."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | None = Field(None, exclude_if=absent, description="What it thought before.")
    tool_calls: list[AnsweredCall] | None = Field(None, exclude_if=absent)


class TokenLogprob(BaseModel):
    """Natural log of the probability that the token was sampled with, temperature and top_p included."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[None] = []


class ChoiceLogprobs(BaseModel):
    content: list[TokenLogprob]
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: ChatAnswer
    finish_reason: ChatFinish
    stop_reason: StopReason = None
    logprobs: ChoiceLogprobs | None = None


class Usage(BaseModel):
    """Counted from the token ids in the log; 0 where the agent gave none. Completions: those of the choices."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class RatchetExtras(BaseModel):
    """The member `ratchet`, beyond OpenAI's shape. `task_id` is the id for /v1/tasks and /v1/feedback."""

    task_id: str
    agent_id: str
    adapter_version: str
    adapter_sha256: str | None
    score: float | None = Field(description="Of the first choice.")
    scores: list[float | None] = Field(description="Of each choice.")
    samples: list[int] = Field(description="Of each choice its index in the group, as feedback names it.")
    group_size: int = Field(description="Answers that were sampled.")
    sampled_tokens: int = Field(description="Of the whole group.")
    overruled: dict[str, float | str] | None = Field(
        None, exclude_if=absent, description="What was asked for and had no effect; absent where there is nothing."
    )


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Seconds since 1970.")
    model: str = Field(description="<agent>@<version> that answered.")
    choices: list[ChatChoice]
    usage: Usage
    system_fingerprint: str | None = Field(description="Of the weights: the sha256 of the adapter, or the engine.")
    ratchet: RatchetExtras


class ReplyMessage(BaseModel):
    """An answer of another server: as little is asked of it as is read."""

    content: Any = None
    refusal: Any = None


class ReplyChoice(BaseModel):
    message: ReplyMessage
    finish_reason: Any = None


class ChatReply(BaseModel):
    """A completion of another server."""

    choices: list[ReplyChoice] = Field(min_length=1)
    usage: Any = None

    @property
    def text(self) -> str:
        """The text of the first choice. Raises RequestRefused where it has none."""
        message = self.choices[0].message
        if isinstance(message.content, str):
            return message.content
        raise RequestRefused(f"the model gave no text{f': {message.refusal}' if message.refusal else ''}")
