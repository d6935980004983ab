"""`ratchet solve`: give a problem to the fleet's programs, watch who is at work, and see what it was judged by.

Left out: another fleet's programs.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from ratchet.service.errors import TimedOut, one_line
from schemas.api.feedback import Approvals
from schemas.api.programs import FleetRollouts
from schemas.api.tasks import LoggedSample, TaskHistory
from schemas.messages.task import Task
from services.cli.constrain import Constrain, constraints_of
from services.cli.fleet.api_client import ApiTokenFile, FleetToken, FleetUrl, api_client, call_api
from services.cli.result import format_foreign, format_tools
from services.cli.submit import moment_in
from services.cli.terminal import CommandError, UsageError, print_raw, read_text, say

LOOK_EVERY_S = 1.0
Language = Literal["python", "javascript", "go", "rust"]
ENDINGS: dict[str, str] = {"python": "py", "javascript": "js", "go": "go", "rust": "rs"}


def solve(
    problem: Annotated[str | None, typer.Option(help="What is to be solved.")] = None,
    file: Annotated[Path | None, typer.Option(help="File with the problem.", exists=True, dir_okay=False)] = None,
    language: Annotated[Language | None, typer.Option(help="The language to solve it in.")] = None,
    tests: Annotated[
        Path | None, typer.Option(help="Hidden cases as JSON (docs/workspaces.md); nothing that solves sees them.")
    ] = None,
    program: Annotated[
        str | None, typer.Option(help="Which of the agent's programs; all in turn, if not named.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Which agent answers.")] = None,
    samples: Annotated[
        int, typer.Option(min=1, max=64, help="Tries; the best comes back. The fleet learns from several only.")
    ] = 1,
    approve: Annotated[
        Literal["before-finish", "on-change", "never"] | None,
        typer.Option(help="Have a person approve each result, or each that changed files; as declared, if not given."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(help="Which of the runner's profiles plays the roles; `local`, if not given: the fleet's agents."),
    ] = None,
    constrain: Constrain = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the answer, its patch and the result.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that it may take.")] = 600.0,
    url: FleetUrl = None,
    token: FleetToken = None,
    token_file: ApiTokenFile = None,
) -> None:
    """Exit code 1 if nothing came of it, 4 if it was not done in time."""
    task = new_problem(
        _problem(problem, file),
        language,
        timeout,
        criteria=_criteria(tests),
        programs=[program] if program else None,
        agent_id=agent,
        samples=samples,
        approval=approve,
        profile=None if profile == "local" else profile,
        constraints=constraints_of(constrain),
    )
    with api_client("orchestrator", url, token, token_file) as client:
        ask = partial(call_api, client)
        ask("POST", "/v1/tasks?wait_s=0", json=task)
        for line in progress(ask, task["task_id"], time.monotonic() + timeout):
            say(line)
        history = TaskHistory.model_validate(ask("GET", f"/v1/tasks/{quote(task['task_id'])}"))
    chosen = next((one for one in history.samples if one.chosen), None)
    if chosen is None:
        raise CommandError(f"task {history.task_id} is {history.state}: {history.result and history.result.reason}")
    for line in report(history, chosen):
        say(line)
    print_raw(chosen.artifact.patch if chosen.artifact and chosen.artifact.patch else chosen.text)
    if out is not None:
        write_out(out, history, chosen, language)


def _problem(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise UsageError("give either --problem or --file")
    return read_text(file) if file else str(text)


def _criteria(tests: Path | None) -> str | None:
    """Read the hidden cases. Raises UsageError for a file that is no JSON."""
    if tests is None:
        return None
    try:
        return json.dumps(json.loads(tests.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UsageError(f"--tests {tests}: {error}") from None


def new_problem(problem: str, language: Language | None, timeout_s: float, **fields: Any) -> dict[str, Any]:
    """Return the task, as the API takes it. `fields`: more of a Task's, of which those that are None are left out."""
    task = Task.model_validate(
        {
            "task_id": f"solve-{uuid.uuid4().hex}",
            "input": f"{problem}\n\nWrite it in {language}." if language else problem,
            "deadline": moment_in(timeout_s),
            **fields,
        }
    )
    return task.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def progress(ask: Callable[[str, str], Any], task_id: str, until: float) -> Iterator[str]:
    """Say what is new of the task's rollouts, and what they ask, until it is closed. Raises TimedOut.

    `ask`: calls the orchestrator's API, by method and path.
    """
    told: set[object] = set()
    path = quote(task_id)
    while TaskHistory.model_validate(ask("GET", f"/v1/tasks/{path}")).state == "open":
        for one in FleetRollouts.model_validate(ask("GET", f"/v1/rollouts?task_id={path}")).items:
            if (now := (one.sample, one.state, one.calls)) not in told:
                told.add(now)
                took = f"{one.calls} calls, {one.sampled_tokens} tokens"
                yield f"sample {one.sample} by {one.program}: {one.state}, {took}"
        for asks in Approvals.model_validate(ask("GET", f"/v1/approvals?task_id={path}")).items:
            if asks.approval_id not in told:
                told.add(asks.approval_id)
                yield f"sample {asks.sample} asks: {one_line(asks.question)}   ratchet approve {asks.approval_id}"
        if time.monotonic() > until:
            raise TimedOut(f"it is not done: ratchet result {task_id} shows it later")
        time.sleep(LOOK_EVERY_S)


def report(history: TaskHistory, chosen: LoggedSample) -> Iterator[str]:
    """Say what the answer was judged by, what its parts gave, what it took, and how far it can be trusted."""
    scorer = history.scorer.id if history.scorer else "nobody"
    yield f"judged by its hidden cases, by {scorer}" if history.criteria else f"judged by {scorer}"
    score = "none" if chosen.score is None else f"{chosen.score:.3f}"
    parts = ", ".join(f"{name} {value:.3f}" for name, value in (chosen.parts or {}).items())
    yield f"score {score}{f' ({parts})' if parts else ''}: {chosen.reason or 'no reason given'}"
    if usage := chosen.usage:
        yield f"took {usage.calls} calls, {usage.sampled_tokens} tokens, {usage.seconds or 0:.1f} s"
        for role, taken in usage.roles.items():
            yield f"{role} {taken.adapter_version}: {taken.calls} calls, {taken.sampled_tokens} tokens"
    elif chosen.tokens is not None:
        yield f"took {chosen.tokens} tokens"
    if chosen.tool_audit:
        yield format_tools(chosen.tool_audit)
    for part in chosen.foreign or ():
        yield format_foreign(part)
    yield f"how far to trust it: {_trust(history)}"


def _trust(history: TaskHistory) -> str:
    if history.criteria:
        return "as far as its hidden cases reach; nothing else was checked"
    return f"read it first; {history.engine or 'a model'} is often wrong, and no tests of yours were run (--tests)"


def write_out(folder: Path, history: TaskHistory, chosen: LoggedSample, language: Language | None) -> None:
    """Write the answer, its patch and the whole history."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"answer.{ENDINGS.get(language or '', 'txt')}").write_text(chosen.text, encoding="utf-8")
    if chosen.artifact and chosen.artifact.patch:
        (folder / "answer.patch").write_text(chosen.artifact.patch, encoding="utf-8")
    (folder / "result.json").write_text(history.model_dump_json(indent=2), encoding="utf-8")
