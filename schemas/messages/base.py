"""The base of every message and record: frozen, versioned, JSON in and out. It knows no queue and no broker."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)


class DecodeError(ValueError):
    """A body that is not the message it should be. Carries the bytes, so that nothing is lost with the error."""

    def __init__(self, reason: str, body: bytes) -> None:
        super().__init__(reason)
        self.reason = reason
        self.body = body


class Sentences(StrEnum):
    """Values that carry a sentence for people: `NAME = "name", "The sentence."`."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member


class Record(BaseModel):
    """A frozen value. Unknown fields are ignored, so that an older reader survives a newer writer."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    @classmethod
    def from_valid(cls, values: Mapping[str, Any]) -> Self:
        """From values by field that are known to be valid, as those of other records are: nothing is checked or copied.

        Fields that are not named have their defaults; every field without one must be.
        """
        record = cls.__new__(cls)
        _set(record, "__dict__", {**_defaults(cls), **values})
        _set(record, "__pydantic_fields_set__", _field_set(tuple(values)))
        _set(record, "__pydantic_extra__", None)
        _set(record, "__pydantic_private__", None)
        return record


_set = object.__setattr__


@cache
def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Return the default of every field, in the order in which they are written."""
    return {
        name: field.get_default(call_default_factory=True, validated_data={})
        for name, field in model.model_fields.items()
    }


@cache
def _field_set(fields: tuple[str, ...]) -> set[str]:
    """Shared by all records that were made with these: they are frozen, and a copy has a set of its own."""
    return set(fields)


class Message(Record):
    """A record that travels or is stored by itself; `TYPE` is its name and version, as in the AMQP `type` property."""

    TYPE: ClassVar[str]

    def encode(self) -> bytes:
        """UTF-8 JSON, the drafted fields first, optional fields that are not set left out."""
        return bytes(self.__pydantic_serializer__.to_json(self, exclude_none=True))

    def encode_around(self, field: str, body: bytes) -> bytes:
        """`encode`, with the JSON that another message came as for its last field, which must be None: byte for byte.

        So what a service only passes on is neither written again nor cut down to the fields this version knows.
        """
        return b'%b,"%b":%b}' % (self.encode()[:-1], field.encode(), body)

    @classmethod
    def decode(cls, body: bytes | str) -> Self:
        """Raises DecodeError with a sentence that names the fields at fault."""
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
            raise DecodeError(explain(cls.TYPE, error), raw) from None


def explain(type_: str, error: ValidationError) -> str:
    """One sentence from a validation error: which message, which field, what is wrong with it."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    if faults[0]["type"] == "json_invalid":
        return f"not JSON, so not a {type_}: {faults[0]['msg']}"
    listed = [f"{'.'.join(map(str, fault['loc'])) or 'the whole'}: {fault['msg']}" for fault in faults[:5]]
    more = f" (and {len(faults) - 5} more)" if len(faults) > 5 else ""
    return f"not a valid {type_}: {'; '.join(listed)}{more}"


KeptApart = Literal[True, "research"] | None
"""A task that teaches nothing. `research`: it teaches the versions of the research agent that answers it."""


def absent(value: object) -> bool:
    """Tell whether to leave out a field (`exclude_if`): one that was added later is not written where it says
    nothing."""
    return value is None


def utc(moment: datetime) -> datetime:
    """A time without a zone is read as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


MOST_STOPS = 16
LONGEST_STOP = 1024
"""Characters."""
StopStrings = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_STOP)], ...],
    Field(min_length=1, max_length=MOST_STOPS),
]
"""An answer ends before the first of them that it would hold, whatever tokens that is sampled in."""

LogEpoch = Annotated[
    int | None,
    Field(
        ge=0, exclude=True, description="Of the orchestrator that wrote it into the log: it grows with each that leads."
    ),
]
"""Written by the log itself (ratchet/logs/journal.py), never by `encode`."""
Timestamp = Annotated[
    datetime,
    AfterValidator(utc),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "format": "date-time"},
                {"type": "number", "description": "Seconds since 1970; milliseconds from 2e10 on."},
            ]
        },
        mode="validation",
    ),
]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
TenantName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
AgentId = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$")]
AdapterVersion = Annotated[str, StringConstraints(pattern=r"^v\d+\.\d+\.\d+$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Score = Annotated[float, Field(ge=0.0, le=1.0)]
Seconds = Annotated[float, Field(ge=0.0)]


class Metadata(BaseModel):
    """When and from where. Whatever else a publisher puts in travels along untouched and is logged."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    timestamp: Timestamp | None = None
    source: str | None = None


class BaseModelIdentity(Record):
    """The model an adapter belongs to. `revision` is a hub commit or the sha256 of a plain folder's content."""

    name: str
    revision: str | None = None


def number(value: Any) -> Any:
    """Refuse what pydantic would also take for a number, and no schema says: true for 1, and "5" for 5."""
    if isinstance(value, bool | str):
        raise ValueError("a number is needed")
    return value


JSON_NUMBER = BeforeValidator(number)
"""Goes last in an Annotated, after the bounds: before them it hides them from the schema."""
