"""One line of each kind that is logged, read by the readers of today and written again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from ratchet.bus.dead_letters import dismissals
from ratchet.bus.dead_letters.dismissals import Dismissals
from ratchet.files import hash_chain
from ratchet.files.hash_chain import Link
from ratchet.logs import quarantine
from ratchet.logs.names import QUARANTINE
from ratchet.logs.seals import Seal
from schemas.messages.base import Message
from schemas.messages.feedback import LoggedFeedback
from schemas.messages.work import Work
from schemas.records.audit import AuditedTask, LoggedLabel
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.index import Promise

LINES = Path(__file__).parent / "lines"

Rewrite = Callable[[Path], Iterator[bytes]]


def _record(type_: type[Message]) -> Rewrite:
    return lambda path: (_with_epoch(type_.decode(line).encode(), line) for line in _lines(path))


def _promises(path: Path) -> Iterator[bytes]:
    for line in _lines(path):
        yield _with_epoch(msgspec.json.encode(msgspec.json.decode(line, type=Promise)), line)


def _with_epoch(written: bytes, line: bytes) -> bytes:
    """The line with the epoch of its leader, which the journal adds to what it is given."""
    return b'%b,"epoch":%d}' % (written[:-1], json.loads(line)["epoch"])


def _chained(path: Path) -> Iterator[bytes]:
    link = Link()
    for line in _lines(path):
        _, fields = hash_chain.follow(link, line)
        link, written = hash_chain.chain_line(link, fields)
        yield written


def _seals(path: Path) -> Iterator[bytes]:
    for line, fields in zip(_chained(path), map(json.loads, _lines(path)), strict=True):
        seal = msgspec.structs.asdict(msgspec.convert(fields, Seal))
        assert seal.items() <= fields.items()
        yield line


def _quarantine(path: Path) -> Iterator[bytes]:
    with _copied(path, QUARANTINE) as folder:
        bad_lines = list(quarantine.read_quarantine(folder))
        (folder / QUARANTINE).unlink()
        for bad in bad_lines:
            quarantine.Quarantine(folder)(bad)
        yield from _lines(folder / QUARANTINE)


def _dismissed(path: Path) -> Iterator[bytes]:
    """Letters are read whole and written again, at the time at which they were dismissed."""
    with _copied(path, dismissals.FILE) as folder:
        kept, place = Dismissals(folder), 0
        for line in _lines(path):
            fields = json.loads(line)
            if "letter" in fields:
                kept.keep(kept.read_letter(place), fields["who"], fields["reason"])
            else:
                kept.note_restored(fields["restored"], fields["who"], fields["reason"])
            place += len(line) + 1
            *_, written = _lines(kept.path)
            yield json.dumps(json.loads(written) | {"at": fields["at"]}, ensure_ascii=False).encode()


@contextmanager
def _copied(path: Path, name: str) -> Iterator[Path]:
    """A folder that holds a copy of the file under that name."""
    with TemporaryDirectory() as folder:
        shutil.copyfile(path, Path(folder) / name)
        yield Path(folder)


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


REWRITERS: dict[str, Rewrite] = {
    "assignments": _record(Work),
    "agent_interactions": _record(Interaction),
    "feedback": _record(LoggedFeedback),
    "auditor_scores": _record(AuditedTask),
    "labels": _record(LoggedLabel),
    "promises": _promises,
    "seals": _seals,
    "quarantine": _quarantine,
    "dismissed_letters": _dismissed,
    "audit": _chained,
}


def rewritten(kind: str) -> bytes:
    """The lines of that kind as they are written today. Raises what their reader raises."""
    return b"".join(line + b"\n" for line in REWRITERS[kind](LINES / f"{kind}.jsonl"))
