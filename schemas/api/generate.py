"""An agent over the API: a prompt answered directly, past the queues, and which adapters a replica has loaded."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from schemas.api.page import Page
from schemas.messages.base import JSON_NUMBER, AdapterVersion, AgentId, Identifier, Record, Seconds, Sha256, StopStrings
from schemas.messages.response import MOST_COUNTED, FinishReason, Usage
from schemas.messages.reward import SampleScore, ScorerIdentity
from schemas.messages.task import Prompt, Reference
from schemas.messages.work import Grammar
from schemas.messages.workspace import Artifact, Workspace


class ScoreRequest(Record):
    input: Prompt = Field(description="What was asked: text, or chat messages.")
    responses: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)] = Field(
        description="The answers; a relative judge compares them with each other."
    )
    artifacts: Annotated[tuple[Artifact | None, ...], Field(min_length=1, max_length=64)] | None = Field(
        None, description="Of a task with a workspace: what each of the answers left in it."
    )
    usages: Annotated[tuple[Usage | None, ...], Field(min_length=1, max_length=64)] | None = Field(
        None, description="What each of the answers took, for scorers of cost."
    )
    workspace: Workspace | None = Field(None, description="The files that the answers change.")
    reference: Reference | None = Field(None, description="The right answer, for scorers that verify.")
    criteria: str | None = Field(None, description="What a good answer is, for scorers that judge.")
    task_type: Identifier | None = Field(None, description="The kind of task, where scoring depends on it.")

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        for name, nothing in (("artifacts", "left nothing"), ("usages", "nobody measured")):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.responses):
                raise ValueError(f"{name} has not as many as responses: null for an answer that {nothing}")
        if any(usage is not None and usage.most > MOST_COUNTED for usage in self.usages or ()):
            raise ValueError(f"usages has a number above {MOST_COUNTED:,}")
        return self


class ScoreAnswer(Record):
    """One score per answer, in order. A null score says that it could not be scored, not that it is bad."""

    scorer: ScorerIdentity
    scores: list[SampleScore]
    seconds: Seconds = Field(description="Scoring, batching included.")


MOST_TOKENS = 1_000_000


Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS), JSON_NUMBER]


class SamplingGiven(Record):
    """Parameters of sampling. The defaults: one sample, at temperature 1, nothing filtered."""

    n: Annotated[int, Field(ge=1, le=64), JSON_NUMBER] = Field(1, description="Answers sampled.")
    temperature: Annotated[float, Field(ge=0, le=5), JSON_NUMBER] = Field(1.0, description="0 is greedy.")
    top_p: Annotated[float, Field(gt=0, le=1), JSON_NUMBER] = Field(
        1.0, description="Nucleus sampling; 1 filters nothing."
    )
    top_k: Annotated[int, Field(ge=0, le=MOST_TOKENS), JSON_NUMBER] = Field(0, description="0 filters nothing.")
    max_tokens: Tokens = Field(256, description="Tokens an answer may have.")
    stop: StopStrings | None = Field(None, description="Answers end before any of these strings.")


class GenerateRequest(Record):
    input: Prompt = Field(description="The prompt: text, or chat messages.")
    sampling: SamplingGiven | None = Field(None, description="How answers are sampled; one at temperature 1 if absent.")
    adapter_version: AdapterVersion | None = Field(
        None, description="A version this replica has loaded, v1.0.0 for the base model; the primary if absent."
    )


class GeneratedSample(Record):
    text: str
    finish_reason: FinishReason | None
    tokens: int | None = Field(description="Sampled tokens, the end token included; null where the engine has none.")


class GenerateAnswer(Record):
    """Not scored, not logged, not learned from."""

    samples: list[GeneratedSample]
    agent_id: AgentId
    adapter_version: AdapterVersion
    adapter_sha256: str | None = Field(description="Of its weights; null for the base model.")
    engine: str = Field(description="Kind of engine, model and revision.")
    seconds: Seconds = Field(description="Generating, batching included.")


class IdsGiven(Record):
    """One answer to a prompt of token ids, by just the adapter that is named: for whoever records a conversation."""

    prompt_ids: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    sampling: SamplingGiven = Field(description="`n` must be 1.")
    adapter_version: AdapterVersion = Field(description="v1.0.0 for the base model. Loaded if it is not.")
    adapter_sha256: Sha256 | None = Field(None, description="Of its content; what has another one does not answer.")
    priority: int = Field(0, ge=0, le=9)
    grammar: Grammar | None = Field(None, description="What the answer is held to.")
    begun: int = Field(0, ge=0, description="So many ids at the end of the prompt are the answer's beginning under it.")
    call: str | None = Field(
        None, max_length=128, description="The call's name: who asks again under it gets what was sampled before."
    )


class TokensTold(Record):
    """A line of the answer: what was sampled since the last. The last line has a `finish_reason` or an `error`."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = Field((), description="Natural logs of the probabilities they were sampled with.")
    finish_reason: FinishReason | None = None
    error: str | None = Field(None, description="Why there is no more; what came before it was sampled all the same.")


class ServedModel(Record):
    """The model of a replica, for clients that make the token ids."""

    agent_id: AgentId
    engine: str
    tokenizer: str | None = Field(description="Folder or hub name of the model whose tokenizer it is.")
    revision: str | None
    context: int | None = Field(description="Tokens of prompt and answer together; null: not known, or takes no ids.")


class LoadedAdapter(Record):
    version: AdapterVersion
    name: str | None = Field(description="What the engine knows it by; null for the base model.")
    is_primary: bool = Field(description="Answers what names no version.")


class LoadedAdapters(Page[LoadedAdapter]):
    """The adapters of one replica; the base model is always among them."""

    agent_id: AgentId
    engine: str
