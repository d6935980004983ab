"""The least a handler can do that stores jobs and shows them: FastAPI, the same schemas, SQLAlchemy over SQLite.

It knows no callers, no quotas and no same job twice, and sends nothing to a fleet.
`python -m bench.manager.bare <port> <file>`.
"""

from __future__ import annotations

import json
import sys
import uuid
from datetime import UTC, datetime, timedelta

import uvicorn
from fastapi import FastAPI, HTTPException
from sqlalchemy import Column, Engine, MetaData, String, Table, create_engine, event, insert, select

from schemas.api.jobs import Job, JobState, JobSubmission

TABLES = MetaData()
JOBS = Table("jobs", TABLES, Column("job_id", String, primary_key=True), Column("body", String))
TASKS = Table("tasks", TABLES, Column("task_id", String, primary_key=True), Column("body", String))
COUNTS = ("waiting", "released", "ok", "failed", "expired", "cancelled", "reserved", "spent")


def application(engine: Engine) -> FastAPI:
    app = FastAPI()

    @app.post("/v1/jobs")
    async def submit(asked: JobSubmission) -> Job:
        now, job_id = datetime.now(UTC), asked.job_id or uuid.uuid4().hex
        counts = dict.fromkeys(COUNTS, 0) | {"tasks": len(asked.tasks)}
        same = {name: getattr(asked, name) for name in ("kind", "priority", "samples", "budget")}
        times = {"created_at": now, "changed_at": now, "deadline": now + timedelta(days=1)}
        named = {"job_id": job_id, "agent_id": "small", "tenant": "default", "state": JobState.QUEUED, "reason": ""}
        job = Job(**counts, **same, **times, **named)
        with engine.begin() as connection:
            connection.execute(insert(JOBS), {"job_id": job_id, "body": job.model_dump_json()})
            rows = [{"task_id": f"{job_id}/{n}", "body": json.dumps(task)} for n, task in enumerate(asked.tasks)]
            connection.execute(insert(TASKS), rows)
        return job

    @app.get("/v1/jobs/{job_id}")
    async def show(job_id: str) -> Job:
        with engine.connect() as connection:
            body = connection.execute(select(JOBS.c.body).where(JOBS.c.job_id == job_id)).scalar_one_or_none()
        if body is None:
            raise HTTPException(404)
        return Job.model_validate_json(body)

    @app.get("/readyz")
    def readyz() -> dict[str, bool]:
        return {"ready": True}

    return app


def main(port: str, file: str) -> None:
    engine = create_engine(f"sqlite:///{file}", connect_args={"timeout": 30})

    @event.listens_for(engine, "connect")
    def prepare(connection: object, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")  # type: ignore[attr-defined]
        connection.execute("PRAGMA synchronous=FULL")  # type: ignore[attr-defined]

    TABLES.create_all(engine)
    uvicorn.run(application(engine), port=int(port), loop="uvloop", http="h11", access_log=False, log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
