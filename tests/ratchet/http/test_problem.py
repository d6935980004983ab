"""Whatever goes wrong is a problem document, and repeats nothing that was sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from ratchet.http.operation import OPERATOR, SUBMITTER, operation
from ratchet.http.problem import Problem, problem_of, problem_of_validation
from ratchet.http.server.application import application
from ratchet.openai.chat import ChatRequest
from ratchet.service import errors
from tests.ratchet.http.real_services import settings_of

SECRET = "hunter2-hunter2"


class Asked(BaseModel):
    number: int
    parts: list[dict[str, int]] = []


class Failing:
    """A route that raises what it is told."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.router = APIRouter()
        self.router.add_api_route("/v1/generate", self.generate, methods=["POST"])

    @operation(SUBMITTER, OPERATOR)
    async def generate(self, asked: Asked) -> dict[str, str]:
        if self.error:
            raise self.error
        return {}


async def answer_to(
    failing: Failing, folder: Path, body: object, content_type: str | None = "application/json"
) -> httpx.Response:
    app = application("agent", [failing.router], settings_of("agent", folder), lambda: None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        content = body if isinstance(body, bytes) else json.dumps(body)
        headers = {} if content_type is None else {"Content-Type": content_type}
        return await client.post("/v1/generate", content=content, headers=headers)


ERRORS = [
    (errors.NotAllowed("no"), 409, False),
    (errors.RegistryConflict("moved"), 409, False),
    (errors.DiskFull("full"), 503, True),
    (errors.StorageUnavailable("gone"), 503, True),
    (errors.BusError("away"), 503, True),
    (errors.PublishTimeout("late"), 503, True),
    (errors.PromptTooLong("long"), 422, False),
    (errors.EngineError("away"), 503, True),
    (errors.Reject("bad"), 422, False),
    (errors.Retry("later"), 503, True),
    (errors.RatchetError("odd"), 500, False),
    (Problem(418, "Teapot", "short and stout", "teapot"), 418, False),
]


@pytest.mark.parametrize(("error", "status", "again"), ERRORS, ids=lambda value: type(value).__name__)
async def test_an_error_of_ours_has_its_status_and_says_itself(
    tmp_path: Path, error: Exception, status: int, again: bool
) -> None:
    failing = Failing()
    failing.error = error

    answer = await answer_to(failing, tmp_path, {"number": 1})

    assert (answer.status_code, answer.json()["status"], answer.json()["detail"]) == (status, status, str(error))
    assert answer.headers["content-type"] == "application/problem+json"
    assert ("retry-after" in answer.headers) == again


def test_every_error_of_the_tree_becomes_a_problem() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RatchetError)]

    assert len(kinds) > 20
    assert all(400 <= problem_of(kind("said")).status < 600 for kind in kinds)


async def test_a_fault_of_ours_tells_nothing_of_itself(tmp_path: Path) -> None:
    failing = Failing()
    failing.error = ValueError(SECRET)

    answer = await answer_to(failing, tmp_path, {"number": 1})

    assert answer.status_code == 500
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/number"]),
        ({"number": SECRET}, ["/number"]),
        ({"number": 1, "parts": [{}, {"a/b": SECRET, "c~d": SECRET}]}, ["/parts/1/a~1b", "/parts/1/c~0d"]),
        (SECRET, [""]),
        (b'{"number": ', [""]),
        (b"\xff\xfe" + SECRET.encode(), [""]),
    ],
    ids=["missing", "wrong", "deep", "no object", "no JSON", "no text"],
)
async def test_what_is_not_valid_is_pointed_at_and_not_repeated(
    tmp_path: Path, body: object, pointers: list[str]
) -> None:
    answer = await answer_to(Failing(), tmp_path, body)

    assert answer.status_code in (400, 422)
    assert SECRET not in answer.text
    if answer.status_code == 422:
        assert [fault["pointer"] for fault in answer.json()["errors"]] == pointers


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"messages": []}, "messages: must not be empty"),
        ({"messages": None}, "messages: must be a list"),
        ({"messages": [7]}, "messages[0]: must be an object"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages[0].role: must be 'system', 'developer', "),
        ({"messages": [{"content": "x"}]}, "messages[0].role: is missing"),
        ({"model": 7}, "model: must be a text"),
        ({"stream": 7}, "stream: must be true or false"),
        ({"n": 0}, "n: must be greater than or equal to 1"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}] * 129}, "tools: must have at most 128 items"),
        ({"colour": "red"}, "colour: is not known here"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_json(given: dict[str, Any], said: str) -> None:
    body = {"model": "small", "messages": [{"role": "user", "content": "x"}], **given}
    with pytest.raises(ValidationError) as found:
        ChatRequest.model_validate(body)
    faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in found.value.errors()]

    told = problem_of_validation(RequestValidationError(faults, body=body)).openai()["message"]

    assert told.startswith(f"the request can't be read: {said}")


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain"])
async def test_a_body_that_was_not_sent_as_json_is_told_so(tmp_path: Path, content_type: str | None) -> None:
    answer = await answer_to(Failing(), tmp_path, {"number": 1}, content_type)

    assert answer.status_code == 422
    assert answer.json()["detail"].endswith("send Content-Type: application/json")
    as_json = await answer_to(Failing(), tmp_path, [], "application/json; charset=utf-8")
    assert "Content-Type" not in as_json.json()["detail"]
