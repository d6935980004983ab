"""Why a client gets no answer, with the status that says so."""

from __future__ import annotations

from ratchet.openai.errors import ContextTooLong, ModelServerError, error_object
from ratchet.service.errors import EngineError, PromptRefused, PromptTooLong

FAILURES = (PromptRefused, ModelServerError, EngineError)


class Refused(Exception):
    """`error` in OpenAI's shape."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error = error_object(status, message, param=param, code=code)


def refused_of(error: Exception) -> Refused:
    if isinstance(error, ContextTooLong | PromptTooLong):
        return Refused(400, str(error), param="messages", code="context_length_exceeded")
    return Refused(400, str(error), param="messages") if isinstance(error, PromptRefused) else Refused(503, str(error))
