"""`ratchet jobs`: many tasks at once, in their turn; what became of them."""

from __future__ import annotations

import json as json_module
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from schemas.api.jobs import MOST_TASKS_A_CALL
from services.cli.fleet.api_client import FleetToken, ManagerUrl, api_client, call_api
from services.cli.submit import moment_in, read_tasks
from services.cli.terminal import AsJson, ExitCode, Listing, UsageError, err, out, print_json, print_raw, read_text, say

jobs = typer.Typer()

JobId = Annotated[str, typer.Argument(help="The job's id.")]
MOST_BYTES_A_CALL = 500_000
ENDED = ("done", "cancelled", "expired")
PAGE = 200


@jobs.command()
def submit(
    file: Annotated[
        Path,
        typer.Argument(
            help="Tasks as JSONL, one a line, as for `ratchet submit --file`; of a training a run a line, such as {}. "
            "- is stdin."
        ),
    ],
    agent: Annotated[str | None, typer.Option(help="Which agent answers.")] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="tasks; evaluation: they teach nothing, and no experiment counts them; training: a version a line."
        ),
    ] = "tasks",
    version: Annotated[
        str | None, typer.Option(help="Which version answers tasks that name none; the one in use if absent.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Answers to sample; one of them comes back.")] = None,
    priority: Annotated[int, typer.Option(min=1, max=10, help="10 goes first.")] = 1,
    deadline: Annotated[
        float | None, typer.Option(min=0, help="Seconds from now after which what has not ended expires.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="The most that it may cost, such as 2.50; it is paused before it costs more.")
    ] = None,
    job_id: Annotated[str | None, typer.Option("--id", help="Your own id; the same id again is the same job.")] = None,
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """Submit a file of tasks as one job, and print its id.

    The file is checked whole before the first task is sent: a line that is no task refuses the job.
    """
    lines = list(_read(file, version, kind))
    if not lines:
        raise UsageError(f"{file} has no task: a line is a task, such as " + '{"input": "sort: gbaec"}')
    until = moment_in(deadline)
    asked = {
        "job_id": job_id or f"job-{uuid.uuid4().hex}",
        "agent_id": agent,
        "kind": kind,
        "samples": samples,
        "priority": priority,
        "deadline": until and until.isoformat(),
        "budget": budget,
    }
    with api_client("manager", url, token) as client:
        job = send_job(client, asked, lines)
    print_raw(job["job_id"])
    say(f"{job['tasks']:,} tasks of agent {job['agent_id']}: `ratchet jobs watch {job['job_id']}`")


@jobs.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="Only those: queued, running, paused, done …")] = None,
    json: AsJson = False,
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """List the newest jobs."""
    query = {"state": state} if state else {}
    with api_client("manager", url, token) as client:
        found = call_api(client, "GET", "/v1/jobs", params=query)["items"]
    if json:
        print_json(found)
        return
    listing = Listing("job", "agent", "state", "priority", "ended", "failed", "reason")
    for job in found:
        ended = f"{job['tasks'] - job['waiting'] - job['released']:,} of {job['tasks']:,}"
        bad = f"{job['failed'] + job['expired']:,}"
        listing.add(job["job_id"], job["agent_id"], job["state"], str(job["priority"]), ended, bad, job["reason"] or "")
    out.print(listing if found else "No job yet. Submit one: ratchet jobs submit FILE")


@jobs.command()
def show(job_id: JobId, json: AsJson = False, url: ManagerUrl = None, token: FleetToken = None) -> None:
    """Show how far a job is, and why tasks of it failed."""
    with api_client("manager", url, token) as client:
        job = call_api(client, "GET", f"/v1/jobs/{job_id}")
    if json:
        print_json(job)
        return
    for line in describe_job(job):
        print_raw(line)


@jobs.command()
def watch(
    job_id: JobId,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two readings.")] = 1.0,
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """Watch a job until it has ended. Exit code 1 if a task of it has no answer."""
    with api_client("manager", url, token) as client, _bar() as bar:
        row = bar.add_task("", total=None, about="")
        while True:
            job = call_api(client, "GET", f"/v1/jobs/{job_id}")
            ended = job["tasks"] - job["waiting"] - job["released"]
            bar.update(row, total=job["tasks"], completed=ended, about=f"{job['state']}, {_time_left(job)}")
            if job["state"] in ENDED and not job["released"]:
                break
            time.sleep(interval)
    for line in describe_job(job):
        print_raw(line)
    if job["ok"] < job["tasks"]:
        raise typer.Exit(ExitCode.FAILED)


@jobs.command()
def results(
    job_id: JobId,
    out: Annotated[Path | None, typer.Option(help="Write them here, not to stdout.")] = None,
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """Print the results that a job has by now, one a line, in the order in which its tasks ended."""
    with api_client("manager", url, token) as client:
        lines = _results(client, job_id)
        if out is None:
            sys.stdout.writelines(lines)
            return
        first = next(lines, "")  # raises before an older file is emptied
        with out.open("w", encoding="utf-8") as file:
            file.writelines(chain([first], lines))


@jobs.command()
def cancel(job_id: JobId, url: ManagerUrl = None, token: FleetToken = None) -> None:
    """End a job: tasks that wait are not run; what the fleet has ends by itself."""
    _act("cancel", job_id, url, token)


@jobs.command()
def pause(job_id: JobId, url: ManagerUrl = None, token: FleetToken = None) -> None:
    """Release no further task of a job."""
    _act("pause", job_id, url, token)


@jobs.command()
def resume(
    job_id: JobId,
    budget: Annotated[str | None, typer.Option(help="Its budget from now on, such as 5.00.")] = None,
    url: ManagerUrl = None,
    token: FleetToken = None,
) -> None:
    """Let a paused job go on, with a larger budget where that was used up."""
    _act("resume", job_id, url, token, {"budget": budget} if budget else None)


@jobs.command()
def rerun(job_id: JobId, url: ManagerUrl = None, token: FleetToken = None) -> None:
    """Run the tasks of a job again that failed, expired or were cancelled."""
    _act("rerun", job_id, url, token)


def send_job(client: httpx.Client, asked: dict[str, Any], lines: Iterable[str]) -> Any:
    """Send a job in parts that a request may have, and return it as the manager has it. Raises CommandError."""
    parts = list(_parts(lines))
    for number, (first, part) in enumerate(parts):
        body = {"tasks": part, "more": number < len(parts) - 1}
        if number == 0:
            job = call_api(client, "POST", "/v1/jobs", json=asked | body)
        else:
            job = call_api(client, "POST", f"/v1/jobs/{asked['job_id']}/tasks", json=body | {"first": first})
    return job


def _parts(lines: Iterable[str]) -> Iterator[tuple[int, list[Any]]]:
    """Yield the number of the first task of each part, and its tasks."""
    first, size = 0, 0
    part: list[Any] = []
    for line in lines:
        if part and (size + len(line) > MOST_BYTES_A_CALL or len(part) == MOST_TASKS_A_CALL):
            yield first, part
            first, part, size = first + len(part), [], 0
        part.append(json_module.loads(line))
        size += len(line)
    if part:
        yield first, part


def _read(file: Path, version: str | None = None, kind: str = "tasks") -> Iterator[str]:
    """Yield each task, or training run, as JSON. Raises UsageError naming the line that is none."""
    lines = [line for line in read_text(file).split("\n") if line.strip()]
    if kind == "training":
        yield from (_run(number, line, version) for number, line in enumerate(lines, start=1))
        return
    for line, task in zip(lines, read_tasks(lines, {}), strict=True):
        fields = json_module.loads(line)
        given = {} if version is None else {"adapter_version": version}
        yield json_module.dumps(given | (fields if isinstance(fields, dict) else {"input": task.input}))


def _run(number: int, line: str, version: str | None) -> str:
    """Return a training run, which starts from `version` where it names none. What it may have the manager checks."""
    try:
        fields = json_module.loads(line)
        return json_module.dumps(({} if version is None else {"parent_version": version}) | fields)
    except (ValueError, TypeError):
        raise UsageError(f"line {number} is no training run: write {{}}, or" + ' {"algorithm": "kto"}') from None


def _results(client: httpx.Client, job_id: str) -> Iterator[str]:
    cursor: dict[str, str] = {}
    while True:
        page = call_api(client, "GET", f"/v1/jobs/{job_id}/results", params={"limit": PAGE, **cursor})
        yield from (f"{json_module.dumps(one, ensure_ascii=False)}\n" for one in page["items"])
        if page["next"] is None:
            return
        cursor = {"cursor": page["next"]}


def _act(act: str, job_id: str, url: str | None, token: str | None, query: dict[str, str] | None = None) -> None:
    with api_client("manager", url, token) as client:
        job = call_api(client, "POST", f"/v1/jobs/{job_id}/{act}", params=query)
    say(f"{job_id} is {job['state']}: {job['reason']}")


def describe_job(job: dict[str, Any]) -> Iterator[str]:
    yield f"{job['job_id']}  agent {job['agent_id']}, priority {job['priority']}"
    yield f"{job['state']}: {job['reason']}"
    counts = ("waiting", "released", "ok", "failed", "expired", "cancelled")
    yield f"{job['tasks']:,} tasks: " + ", ".join(f"{job[name]:,} {name}" for name in counts if job[name])
    if job["score"] is not None:
        mean, low, high = (job["score"][name] for name in ("mean", "low", "high"))
        between = "" if low is None else f" [{low:.3f}, {high:.3f}]"
        yield f"mean score {mean:.3f}{between} of {job['score']['tasks']:,} answers"
    if job["budget"] is not None or float(job["spent"]):
        of = "" if job["budget"] is None else f" of {job['budget']}"
        yield f"{job['spent']}{of} spent, {job['reserved']} reserved"
    if job["state"] not in ENDED:
        yield f"{job['ended_last_minute']:,} ended in the last minute; {_time_left(job)}"
    for reason, count in job["failures"].items():
        yield f"  {count:,} without an answer: {reason}"


def _time_left(job: dict[str, Any]) -> str:
    seconds = job["seconds_left"]
    if seconds is None:
        return "time left: not known, none ended within the last minute"
    return f"about {seconds / 60:.0f} min left" if seconds >= 120 else f"about {seconds:.0f} s left"


def _bar() -> Progress:
    return Progress(BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[about]}"), console=err, transient=True)
