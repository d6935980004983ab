"""Lists the commands. One is imported when it is called: `--help` must not wait for pydantic, pika or a model."""

from __future__ import annotations

from importlib import import_module
from inspect import getdoc
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from services.cli.terminal import FaultsAsSentences

COMMANDS = {
    "demo": (
        "Show the loop: answer, score, learn from the log, prove it on live traffic, promote; and throw a bad "
        "adapter out."
    ),
    "up": "Start the fleet on this machine and wait until it works.",
    "down": "Stop the fleet that was started here: services finish what they have in hand, then the broker stops.",
    "backup": "Back up the fleet of this folder while it runs: its logs, adapters, decisions and registry.",
    "restore": (
        "Restore a backup into empty folders. All of it is checked first; a file that is not whole changes nothing."
    ),
    "submit": "Submit a task and print the best answer, or a file of tasks and print a result a line.",
    "solve": "Solve a problem with the fleet's programs: shows who is at work, then code, tests, score and cost.",
    "record": (
        "Run a program of yours as a task: what it asks a model is recorded token for token, scored and learned from."
    ),
    "result": (
        "Print the answer to a task submitted earlier. Exit code 1 if the task failed or is not known, 4 if still open."
    ),
    "cancel": "Cancel an open task: its rollouts end, and no training learns from it.",
    "approve": "Answer what a program asks a person, or list what is asked. The first answer counts.",
    "feedback": (
        "Give feedback on an answer. In training its score takes the place of the scorer's; of several the last counts."
    ),
    "label": (
        "Say how good answers are, blind, to know scorer and auditor by; --report shows how far they agree with people."
    ),
    "jobs": "Jobs, where the fleet has a manager: submit, list, show, watch, results; pause, resume, cancel, rerun.",
    "agents": "Agents that are registered with the manager while the fleet runs: add, list, show, set, remove.",
    "usage": "Show the tokens that jobs took and what they cost, by agent, job or day.",
    "status": (
        "Show each service, the broker and the queues. Exit code 0 if all is healthy, 1 if not, 3 without a broker."
    ),
    "watch": (
        "Queues, rates, scores by adapter version and latencies by stage; live on a terminal, a line a reading "
        "elsewhere."
    ),
    "train": (
        "Train an adapter from the log, in a process of its own, and register it: a running fleet takes it from there."
    ),
    "try": "Try your own tasks: hold a part out, measure the model, train once on the rest, measure again.",
    "eval": (
        "Hold versions or programs against each other on tasks that no training sees: paired intervals by family, "
        "pass@k by language and level, what a solved task took."
    ),
    "verify": (
        "Try a task's hidden cases on its reference, on nothing and on cheats. Exit code 1 if they can be fooled."
    ),
    "doctor": (
        "Check this machine and the broker; each line says ok, warn or fail, and what to type. Exit code 1 on a fail."
    ),
    "report": (
        "Write one HTML page that opens offline: lineage, scores, training, experiments, decisions with their evidence."
    ),
    "schema": (
        "Write a JSON Schema for each message, an AsyncAPI document of the queues, and an OpenAPI document for each "
        "service; or check that they are current."
    ),
    "mcp": (
        "Serve MCP on stdin and stdout: the tools of orchestrator, agents, runner, scorer and trainer in one server."
    ),
    "log": "The log of answers and scores.",
    "dead-letters": "What could not be handled: list, show, send back, dismiss, restore.",
    "models": "Models: fetch a real one without a hub, make the two small ones here; list, show, remove.",
    "programs": (
        "Programs that answer tasks in sandboxes: list, install what they require, compare; try, promote, rollback."
    ),
    "adapters": "Versions of the adapters: list, show, diff; promote, rollback, freeze, reanchor; verify, export, …",
    "cascade": (
        "A small model that takes over from a big one by proof: show the share, the saving and the evidence; freeze, "
        "unfreeze, set."
    ),
    "broker": "Set up a broker: its users and its queues.",
    "experiment": "Adapters tried on live traffic: list, show the evidence as a chart, replay a verdict.",
    "token": (
        "API tokens. Once: `ratchet token keys`, and the services get RATCHET_API_PUBLIC_KEYS=keys/jwks.json. Then, "
        "as often as needed: `ratchet token issue --role viewer --name ci --ttl 1h`. A fleet that listens on this "
        "machine only, as `ratchet up` starts it, needs neither."
    ),
    "tools": "Tools for agents on one workspace: list, call, serve over MCP; verify their audit.",
    "audit": "The audit of the API: a line for every change and every refusal, each chained to the one before.",
}
"""The purpose of each command by its name. A command is the function, or the group of commands, of that name in
services/cli/<name>.py, or in services/cli/<name>/command.py where it has more files. Its help goes on with the
function's docstring."""

ELSEWHERE = {
    "try": ("services.cli.trying", "trying"),
    "demo": ("demos", "demo"),
    "restore": ("services.cli.backup", "restore"),
}
"""Module and function of commands that are named otherwise, or that lie elsewhere."""
MARKUP: Final = "markdown"
EPILOG = (
    "Exit codes: 0 all well · 1 a task failed, or something is not healthy · 2 what was typed makes no sense · "
    "3 no broker answers · 4 what was waited for did not happen in time."
)


def command(name: str) -> Any:
    """Return a command with all its options, or a group with its commands."""
    word = name.replace("-", "_")
    path, attribute = ELSEWHERE.get(name, (f"services.cli.{word}", word))
    module = import_module(path)
    found = getattr(import_module(f"{path}.command") if hasattr(module, "__path__") else module, attribute)
    parent = typer.Typer(rich_markup_mode=MARKUP)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name, help=COMMANDS[name], no_args_is_help=True)
    else:
        parent.command(name, help="\n\n".join(filter(None, (COMMANDS[name], getdoc(found)))))(found)
    return typer.main.get_group(parent).commands[name]


class Commands(FaultsAsSentences):
    """Knows the names and what each is for; the one that is called is then made whole."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, known, rest = super().resolve_command(ctx, args)
        return name, command(name) if name and known else known, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super(TyperGroup, self).format_help(ctx, formatter)  # rich's boxes take twice as long as all else

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=Commands,
    help="A fleet in which a small model answers tasks, a bigger one scores the answers, and nothing is lost.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
)


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """Options of every command."""


for _name, _about in COMMANDS.items():
    app.command(_name, help=_about)(lambda: None)
