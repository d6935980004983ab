"""Text completions and lists of models: OpenAI's, with the token ids and parents that vLLM adds.

Of what other servers answer, what is not read is not declared; one without `token_ids` gives samples without ids.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from schemas.messages.response import FinishReason


class Logprobs(BaseModel):
    token_logprobs: tuple[float | None, ...]


class TextChoice(BaseModel):
    """`token_ids` include the end token."""

    index: int
    text: str
    finish_reason: FinishReason
    token_ids: tuple[int, ...] | None = None
    logprobs: Logprobs | None = None


class TextCompletion(BaseModel):
    choices: tuple[TextChoice, ...]


class TextDelta(BaseModel):
    """The text that came since the last piece: nothing else of a stream is read."""

    token_ids: tuple[int, ...] | None = None
    logprobs: Logprobs | None = None


class TextChunk(BaseModel):
    choices: tuple[TextDelta, ...]


class Model(BaseModel):
    id: str = Field(description="<agent>, or <agent>@<version>.")
    object: Literal["model"] = "model"
    created: int = Field(description="Seconds since 1970; 0 where it was there from the start.")
    owned_by: str = "ratchet"


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


class ServedModel(BaseModel):
    """One of another server. `parent`: of an adapter, the model it is for."""

    id: str
    parent: str | None = None
    max_model_len: int | None = None


class ServedModels(BaseModel):
    data: tuple[ServedModel, ...]


class Tokens(BaseModel):
    tokens: tuple[int, ...]
