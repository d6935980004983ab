"""Errors as RFC 9457 problem documents (`application/problem+json`), whatever raised them.

A problem never repeats what the caller sent: a token pasted into a body must not come back, or into a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from ratchet.openai.transport import anthropic_details, error_object
from ratchet.service import errors

JSON = "application/json"
MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5
API_PREFIX = "/v1/"
"""Under it errors have a member `error` as well, for OpenAI's clients: their base URL ends there."""
ANTHROPIC_PATH = "/v1/messages"
OPENAI_PATHS = ("/v1/chat/", "/v1/models", "/v1/responses", ANTHROPIC_PATH)
"""OpenAI's own routes, and Anthropic's: 400 for what is not valid."""
SENTENCES = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "none_required": "must be null",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    **dict.fromkeys(("list_type", "tuple_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
}
"""A sentence for each of pydantic's types of errors."""
COUNTED = {"too_short": "item", "too_long": "item", "string_too_short": "character", "string_too_long": "character"}


class Fault(BaseModel):
    """One field that is not as it must be."""

    model_config = ConfigDict(frozen=True)

    pointer: str = Field(description="Where: a JSON pointer into the body, or the name of a parameter.")
    detail: str = Field(description="What is wrong with it.")


class ProblemDocument(BaseModel):
    """The body of every error's answer."""

    type: str = Field("about:blank", description="A word for programs, stable; about:blank where the status says all.")
    title: str = Field(description="What kind of error, in a few words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What happened, to what, and what to do.")
    errors: list[Fault] | None = Field(None, description="The fields at fault, where it is about fields.")
    error: dict[str, Any] | None = Field(None, description="Under /v1: the same as OpenAI's clients read it.")


class Problem(errors.RatchetError):
    """Raise it in a route: it becomes the answer."""

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        type: str = "about:blank",
        headers: Mapping[str, str] | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.type = type
        self.headers = dict(headers or {})
        self.faults = tuple(faults)

    def document(self) -> dict[str, Any]:
        faults = list(self.faults) or None
        document = ProblemDocument(
            type=self.type, title=self.title, status=self.status, detail=self.detail, errors=faults
        )
        return document.model_dump(mode="json", exclude_none=True)

    def response(self, path: str = "") -> Response:
        document, status = self.document(), self.status
        if path.startswith(OPENAI_PATHS) and status == 422:
            status = document["status"] = 400
        if path.startswith(API_PREFIX) or path == API_PREFIX.rstrip("/"):
            document["error"] = self.openai(status)
        if path.startswith(ANTHROPIC_PATH):
            document["type"] = "error"  # so its clients know one; the word for programs is the error's `code`
            document["error"] |= anthropic_details(document["error"]["code"])
        return JSONResponse(document, status, self.headers, MEDIA_TYPE)

    def openai(self, status: int | None = None) -> dict[str, Any]:
        """The fields at fault under the names that the client gave them: `messages[0].content`."""
        places = [_openai_path(fault.pointer) for fault in self.faults]
        told = [f"{place or 'the body'}: {fault.detail}" for place, fault in zip(places, self.faults, strict=True)]
        message = "; ".join([self.detail, *told[1:]])
        code = self.type.removeprefix("about:blank") or None
        return error_object(status or self.status, message, param=places[0] or None if places else None, code=code)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return `responses=` of a route: the problems it answers with besides those that every route has."""
    return {status: document_problem(status) for status in statuses}


def document_problem(status: int) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{ProblemDocument.__name__}"}
    return {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": reference}}}


_STATUS: tuple[tuple[type[errors.RatchetError], int, str, str], ...] = (
    (errors.NotFound, 404, "Not found", "unknown"),
    (errors.Ambiguous, 409, "Could be more than one", "ambiguous"),
    (errors.NotAllowed, 409, "Not allowed now", "not-allowed"),
    (errors.RegistryConflict, 409, "The registry has moved on", "conflict"),
    (errors.DiskFull, 503, "The disk is full", "disk-full"),
    (errors.StorageUnavailable, 503, "The disk can't be used", "storage"),
    (errors.JournalError, 503, "The log can't be used", "log"),
    (errors.DeadLetterError, 503, "The dead letters can't be looked at", "dead-letters"),
    (errors.BusError, 503, "The broker takes no messages", "broker"),
    (errors.PromptRefused, 422, "The model can't be asked this", "prompt-refused"),
    (errors.AdapterError, 422, "Not fit for traffic", "unfit"),
    (errors.EngineError, 503, "The model can't answer", "engine"),
    (errors.ScorerError, 503, "The scorer can't score", "scorer"),
    (errors.Reject, 422, "Not acceptable", "rejected"),
    (errors.Retry, 503, "Not now", "not-now"),
    (errors.RegistryError, 503, "The registry can't be used", "registry"),
    (errors.TrainingRefused, 422, "Not to be trained", "training-refused"),
)
"""The first class that fits."""


def problem_of(error: Exception) -> Problem:
    """The answer to the caller for one of `errors.FAULTS`."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.RatchetError) and error.problem is not None:
        status, title, slug = error.problem
        return Problem(status, title, str(error), slug)
    for kind, status, title, slug in _STATUS:
        if isinstance(error, kind):
            retry = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
            return Problem(status, title, str(error), slug, retry)
    return Problem(500, "A fault of ours", str(error), "fault")


def status_of(error: Exception) -> int:
    """The HTTP status an error becomes."""
    return problem_of(error).status if isinstance(error, errors.FAULTS) else 500


def problem_of_http(error: HTTPException) -> Problem:
    """Return the problem for an error that FastAPI or Starlette raises."""
    headers = error.headers if isinstance(error.headers, dict) else {}
    return Problem(error.status_code, HTTPStatus(error.status_code).phrase, str(error.detail), headers=headers)


def problem_of_validation(error: RequestValidationError, content_type: str = JSON) -> Problem:
    """The fields at fault, without what was in them. Of a union it is the member that fits to the deepest.

    A body that was sent as something else is not read as JSON, and is told so.
    """
    if _is_unread(error) and not _is_json(content_type):
        unread = Fault(pointer="", detail=f"it is not read as JSON: send Content-Type: {JSON}")
        return Problem(
            422, "Not valid", f"the request can't be read: send Content-Type: {JSON}", "invalid", faults=[unread]
        )
    found = dict.fromkeys(_fault(fault, error.body) for fault in error.errors())
    faults = [fault for fault in found if not any(other.pointer.startswith(f"{fault.pointer}/") for other in found)]
    first = (
        f"{_openai_path(faults[0].pointer) or 'the body'}: {faults[0].detail}" if faults else "it is not as it must be"
    )
    return Problem(422, "Not valid", f"the request can't be read: {first}", "invalid", faults=faults)


def _is_unread(error: RequestValidationError) -> bool:
    return isinstance(error.body, bytes) and any(tuple(fault["loc"]) == ("body",) for fault in error.errors())


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == JSON or (kind.startswith("application/") and kind.endswith("+json"))


def _fault(fault: Mapping[str, Any], body: Any) -> Fault:
    where, *path = fault["loc"]
    if fault["type"] == "json_invalid":
        return Fault(pointer="", detail=f"not JSON, at character {fault['loc'][-1]}: {fault['ctx']['error']}")
    if where == "body":
        keys = _keys_in(body, path, missing=fault["type"] == "missing")
        pointer = "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in keys)
    else:
        pointer = "/".join(str(part) for part in path) or str(where)
    return Fault(pointer=pointer, detail=_sentence(fault))


def _sentence(fault: Mapping[str, Any]) -> str:
    """Say what is wrong with a field in words of JSON: pydantic's are those of Python, and speak of a tuple."""
    kind, numbers = fault["type"], fault.get("ctx", {})
    if kind in SENTENCES:
        return SENTENCES[kind]
    if kind in COUNTED:
        least, most = numbers.get("min_length"), numbers.get("max_length")
        if least == 1 or most == 0:
            return "must not be empty" if least == 1 else "must be empty"
        bound, count = ("least", least) if least is not None else ("most", most)
        return f"must have at {bound} {count} {COUNTED[kind]}{'' if count == 1 else 's'}"
    return str(fault["msg"]).removeprefix("Value error, ").replace("Input should", "must", 1)


def _keys_in(body: Any, path: Sequence[int | str], *, missing: bool) -> Iterator[int | str]:
    """Yield the part of pydantic's path that is a path in the client's body: pydantic also names the members of
    unions."""
    for number, part in enumerate(path):
        try:
            body = body[part]
        except (LookupError, TypeError):
            if not (missing and number == len(path) - 1):
                continue
        yield part


def _openai_path(pointer: str) -> str:
    """A JSON pointer as OpenAI writes it: `messages[0].content`."""
    keys = (key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/") if key)
    return "".join(f"[{key}]" if key.isdecimal() else f".{key}" for key in keys).lstrip(".")
