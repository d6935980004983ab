"""Which commands there are. Light on purpose: `--help` must not wait for pydantic, pika or a model."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli.commands import (
    adapters,
    audit,
    broker,
    dead_letters,
    demo,
    doctor,
    down,
    experiment,
    feedback,
    log,
    mcp,
    models,
    report,
    result,
    schema,
    status,
    submit,
    token,
    train,
    up,
    watch,
)
from services.cli.faults import FaultsAsSentences

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
