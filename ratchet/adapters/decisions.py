"""The ledger of decisions: adapters/decisions.jsonl, append-only, each line chained to the one before by its sha256.

A changed, removed or inserted line is found and named (ratchet/files/hash_chain.py says how), and so is a forged one
where lines are signed (signatures.py); the removal of the newest lines needs the registry or the head, which know how
long the ledger was. Who may write, and when, is the registry's affair.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ratchet.adapters.signatures import WAY_ON, LedgerHead, Signer, Signing, check_signature
from ratchet.files import hash_chain
from ratchet.files.append_file import AppendFile, explain
from ratchet.files.atomic_file import sync_folder
from ratchet.files.hash_chain import Link
from ratchet.logs.quarantine import BadLine, Quarantine
from ratchet.service import failpoint
from ratchet.service.errors import RegistryError
from ratchet.service.telemetry import Log
from schemas.messages.base import explain as explain_fields
from schemas.records.decision import Contest, Decision, DecisionDraft, OfProgram, OfVersion, SignWith, StartExperiment
from schemas.records.registry import NO_DECISION

FILE_NAME = "decisions.jsonl"

log = Log(__name__)


class Mark(NamedTuple):
    """A place between two lines: how many decisions and bytes are before it, and the last one's sha256.

    `key` must sign what follows; None: nothing was signed so far.
    """

    sequence: int = 0
    bytes: int = 0
    sha256: str = NO_DECISION
    key: str | None = None

    @property
    def link(self) -> Link:
        return Link(self.sequence, self.sha256)


class LedgerLine(NamedTuple):
    decision: Decision
    end: Mark


class DecisionLedger:
    """Readers need no lock; one writer at a time, who calls `repair` before `append`.

    Without `signing` signatures are checked, but not whose they are, nor whether the ledger was cut short.
    """

    def __init__(self, adapters_dir: Path, signing: Signing | None = None) -> None:
        self.folder = adapters_dir
        self.path = adapters_dir / FILE_NAME
        self.signing = signing

    def read(
        self,
        start: Mark = Mark(),  # noqa: B008 (a constant)
        *,
        only_chain: bool = False,
    ) -> Iterator[LedgerLine]:
        """Every whole line after the mark, each checked against the one before; a torn last line is passed over.

        Raises RegistryError naming the first line that is not what was written, or if the ledger ends before the mark
        or the head. `only_chain`: whoever signed it, and wherever it ends.
        """
        if self._size() < start.bytes:
            raise self._too_short(start)
        head = None if only_chain or self.signing is None else self.signing.head()
        mark = start
        for line in self._lines(start):
            decision = self._parse_line(line, mark, head, only_chain=only_chain)
            mark = _advance_mark(mark, decision, len(line) + 1)
            if head is not None and head.sequence == mark.sequence and head.sha256 != mark.sha256:
                raise RegistryError(
                    f"{self.path} was written anew: its decision {mark.sequence} is another one than was decided. "
                    f"Restore the file from a copy; {WAY_ON}"
                )
            yield LedgerLine(decision, mark)
        if head is not None and mark.sequence < head.sequence:
            raise RegistryError(
                f"{self.path} ends after decision {mark.sequence}, but {head.sequence} were decided: the newest are "
                f"missing. Restore the file from a copy; {WAY_ON}"
            )

    def _lines(self, start: Mark) -> Iterator[bytes]:
        """The whole ones after the mark, without their newlines."""
        if not self.path.exists():
            return
        end = start.bytes
        with self.path.open("rb") as file:
            file.seek(end)
            while (line := file.readline()).endswith(b"\n"):
                if not _is_json(line) and self._size() == end + len(line):
                    return
                end += len(line)
                yield line[:-1]

    def next_decision(self, start: Mark) -> Decision:
        """The one that follows the mark. Raises RegistryError, also where there is none."""
        entry = next(self.read(start), None)
        if entry is None:
            raise RegistryError(
                f"{self.path} ends after decision {start.sequence}: another program cut off what followed. Restore the "
                f"file from a copy"
            )
        return entry.decision

    def repair(self, end: Mark) -> None:
        """Cut off what a crash left after the last whole decision, which ends at the mark; it goes to quarantine.

        Raises DiskFull and JournalError.
        """
        if self._size() <= end.bytes:
            return
        file = AppendFile(self.path)
        try:
            torn = file.read(end.bytes, file.size - end.bytes)
            reason = "torn: the ledger ended within this line, so it was never decided"
            Quarantine(self.folder)(BadLine(FILE_NAME, end.bytes, reason, torn))
            file.cut(end.bytes)
            file.sync()
        except OSError as error:
            raise explain(error, self.path) from error
        finally:
            file.close()
        log.warning("repaired", f"{self.path} ended within a line, now in quarantine", bytes=len(torn))

    def signer(self, end: Mark) -> Signer | None:
        """Return the signer; None while decisions are not signed. Raises RegistryError where they are, but can't be."""
        signer = self.signing.signer() if self.signing else None
        if signer is None and end.key is not None:
            where = f"{self.signing.keys_dir} has none" if self.signing else "it is not given here"
            raise RegistryError(
                f"decisions are signed, and the key to sign this one with is missing: {where}. Decide where the "
                f"fleet's key is, or over the API; {WAY_ON}"
            )
        return signer

    def append(self, end: Mark, draft: DecisionDraft, signer: Signer | None = None) -> LedgerLine:
        """Write the decision after the mark, which is the end of the ledger; it is on disk when this returns.

        Raises DiskFull and JournalError; the line is taken back then, and an ERROR logged should that fail too. What
        the head can't take it gets with the next decision.
        """
        decision, line = chain_decision(end, draft, signer)
        fresh = not self.path.exists()
        file = AppendFile(self.path)
        try:
            self._write(file, line, end)
        except OSError as error:
            self._take_back(file, end)
            raise explain(error, self.path) from error
        finally:
            file.close()
        if fresh:
            sync_folder(self.folder)
        mark = _advance_mark(end, decision, len(line))
        self.advance_head(mark)
        return LedgerLine(decision, mark)

    def advance_head(self, end: Mark) -> None:
        """The ledger has got as far as the mark. Raises DiskFull and JournalError."""
        if self.signing is None or (head := self.signing.head()) is None or head.sequence >= end.sequence:
            return
        self.signing.set_head(LedgerHead(signed_after=head.signed_after, sequence=end.sequence, sha256=end.sha256))

    def _write(self, file: AppendFile, line: bytes, end: Mark) -> None:
        if file.size != end.bytes:
            raise RegistryError(
                f"{self.path} is {file.size:,} bytes long, not {end.bytes:,}: another program writes it; stop that one"
            )
        file.append(line)
        failpoint.reach("decision-written")
        file.sync()
        failpoint.reach("decision-synced")

    def _take_back(self, file: AppendFile, end: Mark) -> None:
        try:
            file.cut(end.bytes)
        except OSError as error:
            log.error(
                "take-back-failed",
                f"the last line of {self.path} could not be taken back: it takes effect at the next change",
                exc_info=error,
            )

    def _parse_line(self, line: bytes, before: Mark, head: LedgerHead | None, *, only_chain: bool) -> Decision:
        """The decision on a line, if the line is exactly what was written after `before`."""
        where = f"{self.path}, line {before.sequence + 1} (from byte {before.bytes:,})"
        try:
            _, fields = hash_chain.follow(before.link, line)
            decision = Decision.model_validate(fields)
        except ValidationError as error:
            raise RegistryError(
                f"{where} was written by another version of ratchet ({explain_fields(Decision.TYPE, error)}): use that"
            ) from None
        except ValueError as error:
            raise RegistryError(
                f"{where} was changed after it was written: {error}. Restore the file from a copy; nothing after this "
                f"line can be trusted"
            ) from None
        if only_chain or (head is not None and before.sequence < head.signed_after):
            return decision
        trusted = self.signing.keys if self.signing else None
        expected = None if head is not None and before.sequence == head.signed_after else before.key
        try:
            check_signature(fields, expected, required=head is not None, trusted=trusted)
        except ValueError as error:
            raise RegistryError(
                f"{where} is not the word of who may decide: {error}. Restore the file from a copy; {WAY_ON}"
            ) from None
        return decision

    def _too_short(self, mark: Mark) -> RegistryError:
        return RegistryError(
            f"{self.path} has {self._size():,} bytes, but the registry holds {mark.sequence} decisions of "
            f"{mark.bytes:,} bytes: the newest are missing. Restore the file from a copy; if there is none, "
            f"`ratchet adapters rebuild` goes back to what the ledger still says"
        )

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0


def chain_decision(before: Mark, draft: DecisionDraft, signer: Signer | None = None) -> tuple[Decision, bytes]:
    """The decision that follows the mark, and its line. Raises RegistryError for evidence that UTF-8 can't hold."""
    try:
        fields = draft.model_dump(mode="json") | {"schema_version": Decision.TYPE}
        _, line = hash_chain.chain_line(before.link, fields, signed=signer.sign if signer else None)
    except ValueError as error:
        raise RegistryError(f"the decision holds text that is no UTF-8, as from a damaged file name: {error}") from None
    return Decision.model_validate_json(line), line + b"\n"


def _advance_mark(before: Mark, decision: Decision, size: int) -> Mark:
    move = decision.move
    following = move.key if isinstance(move, SignWith) else decision.key or before.key
    return Mark(before.sequence + 1, before.bytes + size, decision.sha256, following)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def version_of(decision: Decision) -> str | None:
    """The version a decision is about; None for those that are about the agent, or a program of its."""
    contest, name = _subject(decision)
    return name if contest == "adapters" else None


def program_of(decision: Decision) -> str | None:
    """The program a decision is about."""
    contest, name = _subject(decision)
    return name if contest == "programs" else None


def _subject(decision: Decision) -> tuple[Contest, str] | tuple[None, None]:
    match decision.move:
        case OfVersion() | OfProgram() as move:
            return move.contest, move.name
        case StartExperiment(experiment=experiment):
            return experiment.contest, experiment.arms[0]
        case _:
            return None, None
