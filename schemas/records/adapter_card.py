"""AdapterCard: what an adapter is made of and from. AdapterManifest: which files it consists of, and their sums."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, StringConstraints

from schemas.messages.base import (
    AdapterVersion,
    AgentId,
    BaseModelIdentity,
    Identifier,
    Message,
    Record,
    Sha256,
    Timestamp,
    absent,
)
from schemas.messages.work import BASE_VERSION

FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$")]
"""A path inside the adapter's folder: plain names, `/` between folders, nothing that leads out of it."""


TAUGHT_DIGITS = 16


class DataRange(Record):
    """Bytes `start` to before `end` of a log, counted from the first byte ever written to it."""

    log: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    sha256: Sha256
    chain: Sha256 | None = Field(
        None, description="Of the sums of its lines, which stays when one is erased. Null of earlier versions' cards."
    )


class DataWindow(Record):
    """The data an adapter was trained on. Counts are of what was used, after all filters."""

    ranges: tuple[DataRange, ...] = ()
    first: Timestamp | None = None
    last: Timestamp | None = None
    groups: int = Field(0, ge=0)
    samples: int = Field(0, ge=0)
    taught: tuple[str, ...] = Field(
        (),
        exclude_if=lambda taught: not taught,
        description="Inputs whose demonstrations taught, by the first 16 digits of their sums: no prompts to measure "
        "the adapter by.",
    )


class AdapterCard(Message):
    """`adapter_card.json` in the adapter's folder. `run_id` makes publishing idempotent: one version per run."""

    TYPE: ClassVar[str] = "adapter_card.v1"

    schema_version: Literal["adapter_card.v1"] = "adapter_card.v1"
    run_id: Identifier | None = Field(None, description="The training run that made it.")
    parent: AdapterVersion = Field(BASE_VERSION, description="The version training started from.")
    base: BaseModelIdentity
    algorithm: str
    data: DataWindow = DataWindow()
    hyperparameters: dict[str, JsonValue] = Field(default_factory=dict)
    metrics: dict[str, JsonValue] = Field(default_factory=dict, description="Of the training, as reported at its end.")
    held_out_at: Timestamp | None = Field(
        None, description="Inputs that were registered for evaluation before then were left out of the data."
    )
    research_agent: AgentId | None = Field(
        None, exclude_if=absent, description="The registered agent whose tasks taught it, and alone get its answers."
    )
    created: Timestamp


class ManifestFile(Record):
    size: int = Field(ge=0, description="Bytes.")
    sha256: Sha256


class AdapterManifest(Message):
    """`manifest.json`, written last: a folder without it, or that differs from it, is no adapter."""

    TYPE: ClassVar[str] = "adapter_manifest.v1"

    schema_version: Literal["adapter_manifest.v1"] = "adapter_manifest.v1"
    agent_id: AgentId
    version: AdapterVersion
    files: dict[FileName, ManifestFile]
