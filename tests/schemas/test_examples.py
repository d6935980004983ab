"""Every example file is a test; each bad one proves that the contract bites, and where."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import schemas
from schemas import MESSAGES, RECORDS, DecodeError
from schemas.messages.base import Message
from services.cli.schema import json_schema

EXAMPLES = Path(schemas.__file__).parent / "examples"
MODELS = {model.TYPE: model for model in (*MESSAGES, *RECORDS)}
GOOD = sorted((EXAMPLES / "good").glob("*.json"))
BAD = sorted((EXAMPLES / "bad").glob("*.json"))


def model_of(path: Path) -> type[Message]:
    return MODELS[".".join(path.name.split(".")[:2])]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_example_is_read_and_nothing_of_it_is_lost(path: Path) -> None:
    given = json.loads(path.read_text())

    written = json.loads(model_of(path).decode(path.read_bytes()).encode())

    assert given.items() <= written.items() or normalised(given) == normalised({key: written[key] for key in given})


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_example_satisfies_the_published_json_schema(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text()), json_schema(model_of(path)))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_example_is_refused_with_the_reason_it_is_there_for(path: Path) -> None:
    example = json.loads(path.read_text())

    with pytest.raises(DecodeError) as refused:
        model_of(path).decode(json.dumps(example["message"]))

    assert example["why"] in refused.value.reason
    assert json.loads(refused.value.body) == example["message"]


def test_every_message_has_a_good_and_a_bad_example() -> None:
    assert {model_of(path) for path in GOOD} == {model_of(path) for path in BAD} == {*MESSAGES, *RECORDS}


def normalised(value: object) -> object:
    """Times of one instant are equal however many zeros they are written with."""
    if isinstance(value, dict):
        return {key: normalised(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [normalised(item) for item in value]
    if isinstance(value, str) and value.endswith("Z") and "T" in value:
        return value.rstrip("Z").rstrip("0").rstrip(".")
    return value
