"""Errors between a client and a server of OpenAI's dialect, and the JSON object both tell it by."""

from __future__ import annotations

import json
import re
from typing import Any

from ratchet.service.errors import RatchetError

MOST_CHARS = 500
"""Characters of what a server says about an error."""
_TOO_LONG = ("context length", "max_model_len")
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "invalid_request_error",
    410: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


class ModelServerError(RatchetError):
    """A call of a model server failed."""


class ServerUnavailable(ModelServerError):
    """It can't be reached, refuses our key, fails inside or answers nonsense: the request is not at fault."""


class CallTimeout(ServerUnavailable):
    """No reply within the time-out."""


class ModelMissing(ServerUnavailable):
    """The server has no such model, adapter or route."""


class RequestRefused(ModelServerError):
    """The server will never answer this request: against its rules or its policy."""


class ContextTooLong(RequestRefused):
    """The prompt leaves the model no room to answer."""


def error_object(status: int, message: str, *, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The member `error` of an answer, as OpenAI's clients read it. Its message names the parameter."""
    if param and not re.search(rf"(?<!\w){re.escape(param)}(?!\w)", message):
        message = f"{param}: {message}"
    return {"message": message, "type": _KINDS.get(status, "api_error"), "param": param, "code": code}


def anthropic_details(code: str | None) -> dict[str, Any]:
    """Return more of Anthropic's error: its clients decide by `details.error_code` whether to go on another way."""
    return {"details": {"error_code": code}} if code else {}


def message_of(body: str) -> str:
    """The sentence in an error's body, in any of the shapes that servers of the dialect have used."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return body[:MOST_CHARS]
    error = said.get("error", said) if isinstance(said, dict) else said
    return str(error.get("message", error) if isinstance(error, dict) else error)[:MOST_CHARS]


def error_of(where: str, status: int, body: str, *, setting: str) -> ModelServerError:
    """Sorts an answer that is no success. `setting` names what holds the server's address."""
    said = message_of(body)
    told = f"(HTTP {status}: {said})"
    if status in (400, 413, 422):
        kind = ContextTooLong if any(words in said for words in _TOO_LONG) else RequestRefused
        return kind(f"{where} refuses the request {told}")
    if status in (401, 403):
        return ServerUnavailable(f"{where} refuses our key {told}: mend the API key")
    if status == 404:
        return ModelMissing(f"{where} has no such model or route {told}: mend {setting} or the model's name")
    if status >= 500:
        return ServerUnavailable(f"{where} failed {told}")
    return ServerUnavailable(f"{where} does not answer as an OpenAI-compatible server {told}: mend {setting}")
