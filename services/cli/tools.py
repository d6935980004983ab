"""`ratchet tools`: the operations of a workspace, listed, called, served over MCP; and their audit."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ratchet.service.entry_points import to_install
from ratchet.service.errors import JournalError
from services.cli.result import logged_task
from services.cli.terminal import AsJson, CommandError, UsageError, out, print_json, say, table

try:
    from ratchet.rollouts.tool_audit import verify_lines
    from ratchet.tools.audit import SERVICE, ToolAudit, audit_folder, verify
    from workbench.tools.operation import Operation
    from workbench.tools.policy import Policy
    from workbench.tools.toolbox import OPERATIONS, Toolbox, ToolResult
except ModuleNotFoundError as error:
    raise CommandError(f"{error.name} is not installed: {to_install('tools')}") from None

tools = typer.Typer()
audit = typer.Typer()
tools.add_typer(audit, name="audit", help="The audit of calls and refusals.", no_args_is_help=True)

Root = Annotated[Path, typer.Option(help="The workspace.", file_okay=False, exists=True)]
PolicyFile = Annotated[Path | None, typer.Option(help="What is allowed, in TOML; safe defaults if not named.")]
AuditFolder = Annotated[
    Path | None, typer.Option("--audit", help="Folder of the audit; one in your home, by workspace, if not named.")
]
Anchor = Annotated[
    Path | None, typer.Option(help="File that says what the audit's newest line is; best on another disk.")
]
Consent = Annotated[bool, typer.Option("--yes", help="Consent to what the policy asks about.")]


@tools.command("list")
def list_(policy: PolicyFile = None, json: AsJson = False) -> None:
    """List the operations, and what the policy says of each."""
    read = _policy(policy)
    if json:
        print_json(
            [
                {
                    "name": one.name,
                    "subject": one.subject,
                    "effect": one.effect.value,
                    "policy": read.decides(one).value,
                    "description": one.description,
                    "arguments": one.schema,
                }
                for one in OPERATIONS.values()
            ]
        )
        return
    shown = table("operation", "policy", "what it does", left=3)
    for one in OPERATIONS.values():
        shown.add_row(one.name, read.decides(one).value, one.description)
    out.print(shown)


@tools.command()
def call(
    name: Annotated[str, typer.Argument(help="An operation of `ratchet tools list`.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments, as JSON.")] = "{}",
    root: Root = Path(),
    policy: PolicyFile = None,
    audit: AuditFolder = None,
    anchor: Anchor = None,
    yes: Consent = False,
) -> None:
    """Call one operation and print its answer as JSON. Exit code 1, and why, if it failed or was refused."""
    result = asyncio.run(_call_tool(_toolbox(root, policy, audit, anchor, yes=yes), name, arguments))
    print_json(result.content)
    if not result.ok:
        raise CommandError(str(result.content["says"]))


@tools.command()
def serve(
    root: Root = Path(),
    policy: PolicyFile = None,
    audit: AuditFolder = None,
    anchor: Anchor = None,
    yes: Consent = False,
    http: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of 127.0.0.1 for streamable HTTP, instead of stdio.")
    ] = None,
) -> None:
    """Serve the operations over MCP: on stdin and stdout, or with --http on a port of this machine, with a token."""
    from ratchet.tools.server import PATH, build_server, http_app

    toolbox = _toolbox(root, policy, audit, anchor, yes=yes)
    if http is None:
        asyncio.run(build_server(toolbox).run_stdio_async())
        return
    import uvicorn

    token = secrets.token_urlsafe(32)
    server = uvicorn.Server(uvicorn.Config(http_app(toolbox, token), host="127.0.0.1", port=http, log_level="warning"))
    say(f"http://127.0.0.1:{http}{PATH}   Authorization: Bearer {token}")
    server.run()


@audit.command("verify")
def verify_audit(
    task: Annotated[
        str | None, typer.Argument(help="A task, to check the audits of its rollouts in the log instead.")
    ] = None,
    root: Root = Path(),
    audit: AuditFolder = None,
    anchor: Anchor = None,
    json: AsJson = False,
) -> None:
    """Check every line of the audit; exit code 1 names the first that was touched. With --anchor, also its end."""
    if task is not None:
        _verify_task(task, as_json=json)
        return
    folder = audit or audit_folder(root)
    found = sorted(path for path in folder.glob(f"{SERVICE}*") if path.is_dir())
    if not found:
        raise UsageError(f"there is no audit in {folder}: nothing was called yet, or --audit")
    checked = [verify(one, anchor if len(found) == 1 or one.name == SERVICE else None) for one in found]
    if json:
        print_json(checked)
        return
    for one in checked:
        end = "and its end is as the anchor says" if one["anchored"] else "its end is not anchored"
        out.print(
            f"{one['audit']}: {one['lines']} lines, whole, {end}; the last has sha256 {one['sha256']}", markup=False
        )


def _verify_task(task_id: str, *, as_json: bool) -> None:
    """Check the audit of each rollout of a task. Raises JournalError, CommandError."""
    rows = [line.row for line in logged_task(task_id)[1].lines if line.row.tool_audit is not None]
    if not rows:
        raise CommandError(f"no rollout of task {task_id} called one of our tools: there is no audit")
    checked = []
    for row in rows:
        assert row.tool_audit is not None
        one = row.tool_audit
        try:
            verify_lines(one.lines, one.count, one.sha256)
        except JournalError as error:
            raise CommandError(f"sample {row.sample}: {error}") from None
        checked.append({"sample": row.sample, "lines": one.count, "kept": len(one.lines), "sha256": one.sha256})
    if as_json:
        print_json(checked)
        return
    for said in checked:
        kept = "" if said["kept"] == said["lines"] else f", of which the first {said['kept']} are kept"
        whole = f"{said['lines']} lines{kept}, whole; the last has sha256 {said['sha256']}"
        out.print(f"sample {said['sample']}: {whole}", markup=False)


def _policy(file: Path | None) -> Policy:
    return Policy.read(file, frozenset(OPERATIONS))


def _toolbox(root: Path, policy: Path | None, audit: Path | None, anchor: Path | None, *, yes: bool) -> Toolbox:
    async def consents(operation: Operation, arguments: Mapping[str, Any]) -> bool:
        return yes

    return Toolbox(root, _policy(policy), ToolAudit(audit or audit_folder(root), anchor), ask=consents)


async def _call_tool(toolbox: Toolbox, name: str, arguments: str) -> ToolResult:
    try:
        return await toolbox.call(name, arguments)
    finally:
        await toolbox.close()
