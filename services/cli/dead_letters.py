"""`ratchet dead-letters`: see what could not be handled and why; send it back once that is mended, or put it away.

What was put away can be restored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer
from rich.text import Text

from ratchet.bus.claim_store import FOLDER, waiting_on_disk
from ratchet.bus.dead_letters.dead_letter_service import DeadLetterService, advice
from ratchet.bus.dead_letters.letter import ADVICE_ON_LOST, DEAD, LOST, DeadLetter, Listing, Selection
from ratchet.bus.dead_letters.queue import Stays
from services.cli.adapters.here import operator, require_reason
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import (
    AsJson,
    CommandError,
    ExitCode,
    UsageError,
    out,
    print_json,
    print_raw,
    say,
    say_error,
    table,
)

dead_letters = typer.Typer()

Unroutable = Annotated[bool, typer.Option("--unroutable", help="Instead, what was sent to a name that no queue has.")]


def _not_blank(text: str | None) -> str | None:
    """Raises BadParameter for what a script gave whose variable is not set: it would fit every letter."""
    if text is not None and not text.strip():
        raise typer.BadParameter("it is empty: say which, or leave it out")
    return text


Queue = Annotated[
    str | None, typer.Option(help="Only those that failed in this queue, as `list` names it.", callback=_not_blank)
]
Matching = Annotated[str | None, typer.Option(help="Only those whose reason has this text in it.", callback=_not_blank)]
All = Annotated[bool, typer.Option("--all", help="All of them.")]


@dead_letters.command("list")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", help="How many, from the oldest on.")] = 50,
    queue: Queue = None,
    matching: Matching = None,
    unroutable: Unroutable = False,
    json: AsJson = False,
) -> None:
    """List the dead letters, the oldest first; nothing is taken out."""
    access = FleetAccess.here()
    wanted, service = Selection(queue=queue, matching=matching), _service(access, unroutable)
    if wanted == Selection():
        letters, _ = service.oldest(limit)
    else:
        looked = service.listing()
        letters = list(filter(wanted, looked.letters))[:limit]
        if not looked.is_whole and len(letters) < limit:
            say(f"{len(looked.letters):,} of {looked.total:,} were looked at: more may fit")
    if json:
        print_json([letter.as_dict() for letter in letters])
    elif not letters:
        such = "" if wanted == Selection() else " of that kind"
        out.print(f"No unroutable messages{such}." if unroutable else f"No dead letters{such}.")
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
        raise _no_such([letter_id], unroutable)
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
    queue: Queue = None,
    matching: Matching = None,
    all_: All = False,
    one_at_a_time: Annotated[
        bool, typer.Option("--one-at-a-time", help="All, each only after the last was taken and killed nobody.")
    ] = False,
    unroutable: Unroutable = False,
    json: AsJson = False,
) -> None:
    """Send dead letters back to the queue they failed in. Each leaves here only when the broker has it there.

    An unroutable message goes to the queue it was sent to, once there is one.
    """
    wanted = _selection([letter_id] if letter_id else [], queue, matching, everything=all_ or one_at_a_time)
    sent, stayed = _service(FleetAccess.here(), unroutable).send_back(wanted, one_at_a_time=one_at_a_time, say=say)
    if letter_id and not sent and not stayed:
        raise _no_such([letter_id], unroutable)
    if json:
        print_json({"sent": len(sent), "stayed": [stays._asdict() for stays in stayed]})
    else:
        out.print(f"{len(sent)} sent back")
    _fail_for(stayed)


@dead_letters.command()
def dismiss(
    reason: Annotated[
        str, typer.Option(help="Why: it is kept with each letter, under your name.", callback=require_reason)
    ],
    letter_ids: Annotated[list[str] | None, typer.Argument(help="Their ids, as `list` shows them.")] = None,
    queue: Queue = None,
    matching: Matching = None,
    all_: All = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask where several are meant.")] = False,
    unroutable: Unroutable = False,
    json: AsJson = False,
) -> None:
    """Put dead letters away that nobody needs: out of the queue, whole into dismissed_letters.jsonl of the logs folder.

    Look at them first: `list`, `show`. One that was dismissed before stays so, and the exit code is 0 all the same.
    """
    wanted = _selection(letter_ids or [], queue, matching, everything=all_)
    service = _service(FleetAccess.here(), unroutable)
    if not yes and not wanted.ids:
        _ask(describe_selection(service.listing(), wanted, "unroutable message" if unroutable else "dead letter"))
    gone = service.dismiss(wanted, operator(), reason)
    missing = sorted(wanted.ids.difference(gone))
    if json:
        print_json({"dismissed": len(gone), "missing": missing, "file": str(service.dismissals.path)})
    elif gone:
        out.print(f"{len(gone)} dismissed, kept whole in {service.dismissals.path}", markup=False)
    elif not missing:
        out.print("Nothing to dismiss.")
    if missing:
        raise _no_such(missing, unroutable)


@dead_letters.command()
def restore(
    letter_ids: Annotated[list[str], typer.Argument(help="Their ids, as dismissed_letters.jsonl has them.")],
    reason: Annotated[
        str, typer.Option(help="Why: it is kept beside the letter, under your name.", callback=require_reason)
    ],
    json: AsJson = False,
) -> None:
    """Send dismissed letters to the queues they failed in after all. Each is noted once the broker has it there.

    One that was restored before is not sent again, and the exit code is 0 all the same.
    """
    service, wanted = _service(FleetAccess.here(), unroutable=False), frozenset(letter_ids)
    restored, stayed = service.restore(wanted, operator(), reason)
    missing = sorted(wanted.difference(restored, (stays.id for stays in stayed)))
    if json:
        said = {"restored": len(restored), "missing": missing, "stayed": [stays._asdict() for stays in stayed]}
        print_json(said)
    else:
        out.print(f"{len(restored)} restored")
    if missing:
        say_error(f"no dismissed letter {', '.join(map(repr, missing))}: see {service.dismissals.path}")
    _fail_for(stayed, missing)


def _fail_for(stayed: Sequence[Stays], missing: Sequence[str] = ()) -> None:
    for stays in stayed:
        say_error(f"stays: {stays.id}: {stays.reason}")
    if stayed or missing:
        raise typer.Exit(ExitCode.FAILED)


def _selection(letter_ids: list[str], queue: str | None, matching: str | None, *, everything: bool) -> Selection:
    if bool(letter_ids) == (everything or queue is not None or matching is not None):
        raise typer.BadParameter("say which: an id; or --queue, --matching or both; or --all")
    return Selection(frozenset(letter_ids), queue, matching)


def describe_selection(looked: Listing, wanted: Selection, what: str) -> str:
    count = sum(map(wanted, looked.letters))
    return f"{'' if looked.is_whole else 'at least '}{count:,} {what}{'' if count == 1 else 's'}"


def _ask(letters: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"this would dismiss {letters}: add --yes where nobody can be asked")
    typer.confirm(f"Dismiss {letters}?", abort=True, err=True)


def _service(access: FleetAccess, unroutable: bool) -> DeadLetterService:
    kind = LOST if unroutable else DEAD
    return DeadLetterService(access.amqp_url, access.namespace, kind, logs_dir=access.logs_dir)


def _no_such(letter_ids: Iterable[str], unroutable: bool) -> CommandError:
    what, option = ("unroutable message", " --unroutable") if unroutable else ("dead letter", "")
    return CommandError(f"no {what} {', '.join(map(repr, letter_ids))}: ratchet dead-letters list{option}")


def _print_table(letters: Sequence[DeadLetter]) -> None:
    shown = table("id", "at", "queue", "reason", "begins with", left=5, wraps=("reason", "begins with"))
    for letter in letters:
        tried = f" ({letter.attempts} attempts)" if letter.attempts and letter.attempts > 1 else ""
        when = (letter.at or "–")[:19].replace("T", " ")
        shown.add_row(letter.id, when, letter.queue or "–", Text(letter.reason + tried), Text(letter.beginning))
    out.print(shown, soft_wrap=False)
