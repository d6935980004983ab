"""Logs as JSON lines on stdout, and the trace that a task leaves across services. No spans, no exporters.

A trace id is the one of W3C Trace Context: it comes with the message in the header `traceparent`, or is made at intake.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

TRACE_HEADER = "traceparent"
WELL_FORMED = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

trace_parent: ContextVar[str | None] = ContextVar("trace_parent", default=None)
"""The `traceparent` of the message being handled; a publish sends it on."""
task_in_hand: ContextVar[str | None] = ContextVar("task_in_hand", default=None)
"""The id of the task being handled, for the log."""


def new_trace_parent() -> str:
    """A W3C traceparent (version 00, sampled): `00-<32 hex trace id>-<16 hex parent id>-01`."""
    random = os.urandom(24).hex()
    return f"00-{random[:32]}-{random[32:]}-01"


def trace_parent_of(headers: Mapping[str, Any]) -> str:
    """The one the message carries if it is well-formed, else a new one."""
    carried = headers.get(TRACE_HEADER)
    if isinstance(carried, str) and WELL_FORMED.fullmatch(carried):
        return carried
    return new_trace_parent()


TOKEN = re.compile(r"eyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]*")
"""Matches a JSON Web Token: its header is a JSON object in base64url."""


def without_tokens(text: str) -> str:
    """Remove tokens from the text: they must not be kept."""
    return TOKEN.sub("<token>", text) if "eyJ" in text else text


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, service, action (a stable word), task and trace id, details."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self.service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "service": self.service,
            "action": getattr(record, "action", record.name),
            "message": record.getMessage(),
        }
        if task_id := task_in_hand.get():
            line["task_id"] = task_id
        if trace := trace_parent.get():
            line["trace_id"] = trace[3:35]
        line |= getattr(record, "details", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return without_tokens(json.dumps(line, ensure_ascii=False, default=str))


def log_to_stdout(service: str, level: str = "INFO") -> None:
    """Make the root logger write JSON lines to stdout. Call once, in a front door."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonLines(service))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for noisy in ("pika", "httpx", "urllib3", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class Log:
    """A logger whose every line says an action: `log.info("retried", "…", queue=…)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, action: str, message: str, **details: Any) -> None:
        self._emit(logging.DEBUG, action, message, details)

    def info(self, action: str, message: str, **details: Any) -> None:
        self._emit(logging.INFO, action, message, details)

    def warning(self, action: str, message: str, **details: Any) -> None:
        self._emit(logging.WARNING, action, message, details)

    def error(self, action: str, message: str, *, exc_info: BaseException | None = None, **details: Any) -> None:
        self._emit(logging.ERROR, action, message, details, exc_info)

    def _emit(
        self, level: int, action: str, message: str, details: dict[str, Any], exc: BaseException | None = None
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", message, exc_info=exc, extra={"action": action, "details": details})
