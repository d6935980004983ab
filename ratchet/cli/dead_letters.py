"""`ratchet dead-letters`: see what could not be handled and why, and send it back once the cause is mended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ratchet.bus.claim_store import FOLDER, waiting_on_disk
from ratchet.bus.dead_letters.dead_letter_service import DeadLetterService, advice
from ratchet.bus.dead_letters.kinds import ADVICE_ON_LOST, DEAD, LOST
from ratchet.bus.dead_letters.letter import DeadLetter
from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.terminal import AsJson, CommandError, ExitCode, out, print_json, print_raw, say, say_error

dead_letters = typer.Typer()

Unroutable = Annotated[bool, typer.Option("--unroutable", help="Instead, what was sent to a name that no queue has.")]


@dead_letters.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many, from the oldest on.")] = 50,
    unroutable: Unroutable = False,
    json: AsJson = False,
) -> None:
    """List the dead letters, the oldest first; nothing is taken out."""
    access = FleetAccess.here()
    letters, _ = _service(access, unroutable).oldest(limit)
    if json:
        print_json([letter.as_dict() for letter in letters])
    elif not letters:
        out.print("No unroutable messages." if unroutable else "No dead letters.")
    else:
        _print_table(letters)
    if not json and not unroutable and (waiting := waiting_on_disk(access.logs_dir)):
        out.print(f"{waiting} more wait in {access.logs_dir / FOLDER} until the queue has room.")


@dead_letters.command()
def show(
    letter_id: Annotated[str, typer.Argument(help="Its id, as `list` shows it.")],
    unroutable: Unroutable = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON, with the body.")] = False,
) -> None:
    """Show one dead letter whole: why it failed, and its body."""
    access = FleetAccess.here()
    held = _service(access, unroutable).find(letter_id)
    if held is None:
        raise _no_such(letter_id, unroutable)
    shown = held.letter.as_dict() | {"advice": ADVICE_ON_LOST if unroutable else advice(held.letter)}
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
    unroutable: Unroutable = False,
) -> None:
    """Send dead letters back to the queue they failed in. Each leaves here only when the broker has it there.

    An unroutable message goes to the queue it was sent to, once there is one.
    """
    if (letter_id is None) == (not (all_ or one_at_a_time)):
        raise typer.BadParameter("give either an id, or --all, or --one-at-a-time")
    access = FleetAccess.here()
    sent, stayed = _service(access, unroutable).send_back(
        lambda letter: letter_id in (None, letter.id), one_at_a_time=one_at_a_time, say=say
    )
    if letter_id and not sent and not stayed:
        raise _no_such(letter_id, unroutable)
    out.print(f"{len(sent)} sent back")
    for stays in stayed:
        say_error(f"stays: {stays.id}: {stays.reason}")
    if stayed:
        raise typer.Exit(ExitCode.FAILED)


def _service(access: FleetAccess, unroutable: bool) -> DeadLetterService:
    kind = LOST if unroutable else DEAD
    return DeadLetterService(access.amqp_url, access.namespace, kind, logs_dir=access.logs_dir)


def _no_such(letter_id: str, unroutable: bool) -> CommandError:
    what, option = ("unroutable message", " --unroutable") if unroutable else ("dead letter", "")
    return CommandError(f"no {what} {letter_id!r}: ratchet dead-letters list{option}")


def _print_table(letters: Sequence[DeadLetter]) -> None:
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
