"""Which commands there are. Light on purpose: `--help` must not wait for pydantic, pika or a model."""

from __future__ import annotations

from typing import Annotated

import typer

from ratchet.cli.adapters import command as adapters
from ratchet.cli.audit import command as audit
from ratchet.cli.broker import command as broker
from ratchet.cli.dead_letters import command as dead_letters
from ratchet.cli.demo import command as demo
from ratchet.cli.doctor import command as doctor
from ratchet.cli.down import command as down
from ratchet.cli.experiment import command as experiment
from ratchet.cli.feedback import command as feedback
from ratchet.cli.log import command as log
from ratchet.cli.mcp import command as mcp
from ratchet.cli.models import command as models
from ratchet.cli.report import command as report
from ratchet.cli.result import command as result
from ratchet.cli.schema import command as schema
from ratchet.cli.status import command as status
from ratchet.cli.submit import command as submit
from ratchet.cli.terminal.errors import FaultsAsSentences
from ratchet.cli.token import command as token
from ratchet.cli.train import command as train
from ratchet.cli.up import command as up
from ratchet.cli.watch import command as watch

EPILOG = (
    "Exit codes: 0 all well · 1 a task failed, or something is not healthy · 2 what was typed makes no sense · "
    "3 no broker answers · 4 what was waited for did not happen in time."
)

app = typer.Typer(
    cls=FaultsAsSentences,
    help="A fleet in which a small model answers tasks, a bigger one scores the answers, and nothing is lost.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """Options of every command."""


app.command()(demo.demo)
app.command()(up.up)
app.command()(down.down)
app.command()(submit.submit)
app.command()(result.result)
app.command()(feedback.feedback)
app.command()(status.status)
app.command()(watch.watch)
app.command()(train.train)
app.command()(doctor.doctor)
app.command()(report.report)
app.command()(schema.schema)
app.command()(mcp.mcp)
app.add_typer(log.log, name="log")
app.add_typer(dead_letters.dead_letters, name="dead-letters")
app.add_typer(models.models, name="models")
app.add_typer(adapters.adapters, name="adapters")
app.add_typer(broker.broker, name="broker")
app.add_typer(experiment.experiment, name="experiment")
app.add_typer(token.token, name="token")
app.add_typer(audit.audit, name="audit")
