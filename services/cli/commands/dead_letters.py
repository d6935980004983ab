"""`ratchet dead-letters`: see what could not be handled and why, and send it back once the cause is mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.dead_letters.dead_letter import DeadLetter

dead_letters = typer.Typer(help="What could not be handled: list, show, send back.", no_args_is_help=True)


@dead_letters.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many, from the oldest on.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the dead letters, the oldest first; nothing is taken out."""
    from services.cli.console import out, print_json
    from services.cli.fleet.fleet_access import FleetAccess
    from services.dead_letters.office import DeadLetterOffice

    access = FleetAccess.here()
    letters, _ = DeadLetterOffice(access.amqp_url, access.namespace).oldest(limit)
    if json:
        print_json([letter.as_dict() for letter in letters])
    elif not letters:
        out.print("No dead letters.")
    else:
        _print_table(letters)


@dead_letters.command()
def show(
    letter_id: Annotated[str, typer.Argument(help="Its id, as `list` shows it.")],
    json: Annotated[bool, typer.Option("--json", help="As JSON, with the body.")] = False,
) -> None:
    """Show one dead letter whole: why it failed, and its body."""
    from services.cli.console import out, print_json, print_raw
    from services.cli.exit_codes import CommandError
    from services.cli.fleet.fleet_access import FleetAccess
    from services.dead_letters.office import DeadLetterOffice, advice

    access = FleetAccess.here()
    held = DeadLetterOffice(access.amqp_url, access.namespace).find(letter_id)
    if held is None:
        raise CommandError(f"no dead letter {letter_id!r}: ratchet dead-letters list")
    shown = held.letter.as_dict() | {"advice": advice(held.letter)}
    text = held.body.decode("utf-8", "backslashreplace")
    if json:
        print_json(shown | {"body": text})
        return
    for name, value in shown.items():
        if name != "beginning":
            out.print(f"{name:<12} {'–' if value is None else value}", markup=False)
    print_raw(text)


@dead_letters.command()
def requeue(
    letter_id: Annotated[str | None, typer.Argument(help="Its id, as `list` shows it.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    one_at_a_time: Annotated[
        bool, typer.Option("--one-at-a-time", help="All, each only after the last was taken and killed nobody.")
    ] = False,
) -> None:
    """Send dead letters back to the queue they failed in. Each leaves here only when the broker has it there."""
    from services.amqp.short_connection import connected
    from services.cli.console import out, say, say_error
    from services.cli.exit_codes import CommandError, ExitCode
    from services.cli.fleet.fleet_access import FleetAccess
    from services.dead_letters.dead_letter_queue import DeadLetterQueue

    if (letter_id is None) == (not (all_ or one_at_a_time)):
        raise typer.BadParameter("give either an id, or --all, or --one-at-a-time")
    access = FleetAccess.here()
    with connected(access.amqp_url) as connection:
        queue = DeadLetterQueue(connection, access.namespace)
        sent, stayed = queue.requeue(
            lambda letter: letter_id in (None, letter.id), one_at_a_time=one_at_a_time, say=say
        )
    if letter_id and not sent and not stayed:
        raise CommandError(f"no dead letter {letter_id!r}: ratchet dead-letters list")
    out.print(f"{len(sent)} sent back")
    for stays in stayed:
        say_error(f"stays: {stays.id}: {stays.reason}")
    if stayed:
        raise typer.Exit(ExitCode.FAILED)


def _print_table(letters: Sequence[DeadLetter]) -> None:
    from rich.table import Table
    from rich.text import Text

    from services.cli.console import out

    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("id", "at", "queue"):
        table.add_column(name, no_wrap=True)
    table.add_column("reason", overflow="fold", ratio=3)
    table.add_column("begins with", overflow="fold", ratio=2)
    for letter in letters:
        tried = f" ({letter.attempts} attempts)" if letter.attempts and letter.attempts > 1 else ""
        when = (letter.at or "–")[:19].replace("T", " ")
        table.add_row(letter.id, when, letter.queue or "–", Text(letter.reason + tried), Text(letter.beginning))
    out.print(table, soft_wrap=False)
