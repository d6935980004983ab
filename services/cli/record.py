"""`ratchet record`: reads a task and a command, finds the fleet, and becomes the process that records."""

from __future__ import annotations

import json as json_module
import os
import shlex
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from ratchet.programs.task_input import unfit_argument
from ratchet.rollouts.order import RecordOrder
from schemas.messages.base import Identifier
from schemas.messages.task import Task
from services.cli.fleet.folder import FROM_ELSEWHERE, FleetAccess, FleetRecord
from services.cli.fleet.options import AGENT, agent_of
from services.cli.fleet.own_fleet import unused_reference
from services.cli.submit import moment_in, new_task
from services.cli.terminal import CommandError, UsageError, read_text, say

EXAMPLE = 'ratchet record --input "sort: gbaec" --reference abceg -- python my_agent.py'


def record(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The program and its arguments, behind --; `{input}` in one is the task's input."),
    ] = None,
    task: Annotated[Path | None, typer.Option(help="The task, a Task as JSON; - reads it from stdin.")] = None,
    text: Annotated[
        str | None, typer.Option("--input", help="What is asked, if not in a file; the command's line if neither.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="What the program is called in the log and where programs are compared; its script's name."),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, max=64, help="Runs side by side; one if neither this nor the task says.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Whose model answers, and learns.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="The right answer, for scorers that verify (not `likelihood`).")
    ] = None,
    criteria: Annotated[str | None, typer.Option(help="What a good answer is, for scorers that judge.")] = None,
    deadline: Annotated[
        float | None, typer.Option(min=1, help="Seconds from now until which it must be answered and scored.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.1, help="Seconds a run may take; until shortly before the deadline if not set."),
    ] = None,
    task_id: Annotated[
        str | None, typer.Option(help="Your own id; the same id again goes on, or gets its result.")
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option("--url", help="Where the agent's HTTP is, for a fleet that is not here; one for each replica."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder or hub name of the model's tokenizer, where the agent's is not at hand.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="RATCHET_API_TOKEN", show_envvar=True, help="An operator's, where the fleet asks for one."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    """The program runs as it is. It finds OPENAI_BASE_URL, ANTHROPIC_BASE_URL and a key for both in its environment and
    the task's input on its stdin, and may call the model as often as it likes, with tools, streamed, several calls at a
    time; whatever model it names, the fleet's answers, with the adapter that the task was given. What it prints is its
    answer, which the fleet's scorer scores.

        ratchet record --input "sort: gbaec" --reference abceg --samples 8 -- python my_agent.py

    A model learns from the difference between answers to the same task: record with --samples 4 or more. The runs share
    this folder; RATCHET_SAMPLE (0, 1, …) tells them apart. There is no sandbox. `ratchet log show TASK` shows each
    conversation, `ratchet train` learns from them.
    """
    if not command:
        raise UsageError(f"give the program to run: {EXAMPLE}")
    if task is not None and text is not None:
        raise UsageError("give either --task or --input")
    if shutil.which(command[0]) is None:
        raise UsageError(f"there is no program {command[0]!r} here")
    fields: dict[str, Any] = {
        "agent_id": agent,
        "reference": reference,
        "criteria": criteria,
        "samples": samples,
        "task_id": task_id,
        "deadline": moment_in(deadline),
    }
    asked = task_of(task, text if text is not None else shlex.join(command), fields)
    if asked.constraints and asked.constraints.tools:
        raise UsageError("constraints.tools: a program that is recorded has none of the tools of Ratchet to be held to")
    if name is not None and unfit_name(name):
        raise UsageError(f"--name {name!r} can't be a program's name: 1 to 200 characters, none of them a control")
    if unfit := unfit_argument(tuple(command), asked.input):
        raise UsageError(unfit)
    access = FleetAccess.here()
    order = RecordOrder(
        task=asked,
        command=tuple(command),
        name=name,
        amqp_url=access.amqp_url,
        namespace=access.namespace,
        agent_urls=tuple(url or ()) or replicas(access.record, asked.agent_id or access.agents[0]),
        token=token,
        tokenizer=tokenizer,
        time_limit_s=time_limit,
        as_json=json,
    )
    if asked.reference is not None and (note := unused_reference(access.record)):
        say(note)
    become_recorder(order)


def task_of(file: Path | None, text: str, fields: dict[str, Any]) -> Task:
    """Make the task of the file, or one that asks `text`; `fields` that are not None go before the file's. Raises
    UsageError."""
    given = {name: value for name, value in fields.items() if value is not None}
    if file is None:
        return new_task({"samples": 1, "input": text} | given)
    content = read_text(file)
    try:
        read = json_module.loads(content)
        if not isinstance(read, dict):
            raise UsageError("it is no JSON object")
        return new_task({"samples": 1} | read | given)
    except (ValueError, UsageError) as error:
        raise UsageError(
            f'{file}: {error}. A task is such as {{"input": "sort: gbaec", "reference": "abceg"}}'
        ) from None


def unfit_name(name: str) -> bool:
    try:
        TypeAdapter(Identifier).validate_python(name)
    except ValidationError:
        return True
    return False


def replicas(record: FleetRecord | None, agent_id: str) -> tuple[str, ...]:
    """Return where the agent's replicas of the fleet that was started here are. Raises CommandError where there is
    none."""
    programs = [one for one in record.programs if one.name.startswith(f"{AGENT}-")] if record else []
    found = [
        f"http://127.0.0.1:{program.http_port}"
        for program in programs
        if program.http_port and record and agent_of(program.name, record.options) == agent_id
    ]
    if not found:
        raise CommandError(
            f"no agent {agent_id!r} was started here: `ratchet up`, or say where it is with --url; {FROM_ELSEWHERE}"
        )
    return tuple(found)


def become_recorder(order: RecordOrder) -> None:
    """It replaces this process, so that who ends this ends that; does not return."""
    with TemporaryFile() as file:
        file.write(order.model_dump_json().encode())
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        sys.stdout.flush()
        sys.stderr.flush()
        safely = "-P"  # what lies in this folder is the program's, no module of ours
        os.execv(sys.executable, [sys.executable, safely, "-m", "ratchet.rollouts", str(file.fileno())])
