"""/v1/log: the last lines of the log of interactions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ValidationError

from ratchet.http.problem import problems
from ratchet.http.threads import Threads
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import active_tail
from schemas.api.log import LogLine, LogTail


def log_router(logs_dir: Path, threads: Threads) -> APIRouter:
    router = APIRouter(tags=["log"])

    @router.get("/v1/log", responses=problems(503))
    async def log(limit: Annotated[int, Query(ge=1, le=200, description="Lines, the newest of them.")] = 50) -> LogTail:
        """The log's tail: the newest samples with their scores, the oldest of them first."""
        return LogTail(items=await threads.run(_tail, logs_dir, limit))

    return router


def _tail(folder: Path, count: int) -> list[LogLine]:
    found = (_line(data) for data in active_tail(folder, INTERACTIONS, count))
    return [line for line in found if line is not None]


def _line(data: bytes) -> LogLine | None:
    """None for a line that can't be read: the orchestrator says so at its start, and sets it aside."""
    try:
        return LogLine.model_validate_json(data)
    except ValidationError:
        return None
