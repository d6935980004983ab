"""`ratchet approve`: what programs ask people, and an answer."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import quote

import typer
from rich.text import Text

from ratchet.service.errors import one_line
from schemas.api.feedback import Approval, Approvals
from services.cli.fleet.api_client import ApiTokenFile, FleetToken, FleetUrl, api_client, call_api
from services.cli.terminal import AsJson, UsageError, out, print_json, say, table

Decision = Literal["approve", "reject", "edit"]


def approve(
    approval_id: Annotated[
        str | None, typer.Argument(help="The question's id; without one the open questions are listed.")
    ] = None,
    reject: Annotated[bool, typer.Option("--reject", help="Reject it: the program is told, and goes on.")] = False,
    edit: Annotated[str | None, typer.Option(help="What it should be instead.")] = None,
    text: Annotated[str, typer.Option(help="What the program is told besides.")] = "",
    url: FleetUrl = None,
    token: FleetToken = None,
    token_file: ApiTokenFile = None,
    json: AsJson = False,
) -> None:
    """Exit code 1 if it was answered before, or its time is up."""
    client = api_client("orchestrator", url, token, token_file)
    if approval_id is None:
        if reject or edit is not None or text:
            raise UsageError("name the question: `ratchet approve` lists them")
        with client:
            _list(Approvals.model_validate(call_api(client, "GET", "/v1/approvals")), as_json=json)
        return
    if edit is not None and (reject or text):
        raise UsageError("--edit has its text, and is neither approval nor rejection")
    decision: Decision = "edit" if edit is not None else "reject" if reject else "approve"
    body = {"decision": decision, "text": text if edit is None else edit}
    path = f"/v1/approvals/{quote(approval_id, safe='')}"
    with client:
        answered = Approval.model_validate(call_api(client, "POST", path, json=body))
    if json:
        print_json(answered.model_dump(mode="json"))
    else:
        say(f"{decision}: sample {answered.sample} of task {answered.task_id} goes on")


def _list(found: Approvals, *, as_json: bool) -> None:
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    shown = table("id", "task", "sample", "question", "until", left=2)
    for one in found.items:
        until = one.until.isoformat(timespec="seconds")
        question = Text("\n".join(one_line(line, len(line)) for line in one.question.splitlines()))  # a program's words
        shown.add_row(one.approval_id, one.task_id, str(one.sample), question, until)
    out.print(shown)
