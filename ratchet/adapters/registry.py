"""The adapter registry on disk: read it without waiting, change it one decision at a time.

The ledger of decisions is written first and is the truth; adapter_registry.json is what it adds up to, replaced
atomically afterwards. A crash between the two leaves the registry one decision behind, which the next change (or
`open`) catches up. Writers, in any number of processes, take turns by a lock on the folder; readers take none.

Every call blocks on the disk: from an event loop, call it in a thread. Which moves are allowed is in registry_moves.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.adapters.decisions import DecisionLedger, Mark, chained
from ratchet.adapters.registry_moves import apply
from ratchet.files.atomic_file import replace_file
from ratchet.files.folder_lock import LOCK_TIMEOUT_S, locked
from ratchet.service.errors import NotAllowed, RegistryConflict, RegistryError
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.records.decision import Decision, DecisionDraft
from schemas.records.registry import Registry

FILE_NAME = "adapter_registry.json"

log = Log(__name__)


class RegistryStore:
    def __init__(
        self, adapters_dir: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S, check: Callable[[], None] = lambda: None
    ) -> None:
        """`check` raises what keeps this process from changing it, and is asked with the lock in hand."""
        self.folder = adapters_dir
        self.path = adapters_dir / FILE_NAME
        self.ledger = DecisionLedger(adapters_dir)
        self._lock_timeout_s = lock_timeout_s
        self._check = check

    def read(self) -> Registry:
        """Never waits, never sees half a change. Raises RegistryError if the file is damaged.

        Where there is no file yet, or no longer, the ledger is replayed instead: losing it must not lose the primary.
        """
        try:
            return Registry.decode(self.path.read_bytes())
        except FileNotFoundError:
            registry = self.replay()
            return self.read() if self.path.exists() else registry  # a writer came first: the file's word counts
        except DecodeError as error:
            raise RegistryError(
                f"{self.path} is damaged ({error.reason}): `ratchet adapters rebuild` makes it anew from the decisions"
            ) from None

    def open(self) -> Registry:
        """Catch up with the ledger after a crash, and check the whole of it; for the start of a service.

        Raises RegistryError if the ledger is broken, or if the registry is not what the ledger adds up to.
        """
        with self._locked():
            registry = self._caught_up()
            if registry != self.replay():
                raise RegistryError(
                    f"{self.path} is not what {self.ledger.path.name} adds up to: it was changed by hand. `ratchet "
                    f"adapters rebuild` takes the ledger's word"
                )
            return registry

    def change(self, expected_revision: int, draft: DecisionDraft) -> Registry:
        """Decide, if nobody decided anything since `expected_revision`; the registry after it, on disk.

        Raises NotAllowed, RegistryConflict (nothing was written), RegistryError, DiskFull and JournalError: should then
        the decision be in the ledger already, it takes effect with the next change that finds room.
        """
        with self._locked():
            registry = self._caught_up()
            if registry.revision != expected_revision:
                raise RegistryConflict(
                    f"the registry is at revision {registry.revision}, not {expected_revision}: read it again"
                )
            return self._decide(registry, draft)

    def update(self, decide: Callable[[Registry], DecisionDraft | None]) -> Registry:
        """Decide on the registry as it is now; nobody can come in between. `decide` giving None leaves all as it is.

        `decide` is called on what a reader sees and, if it wants a change, once more while others wait: it must be
        quick, and depend on its argument alone. Raises as `change`, but never RegistryConflict.
        """
        if decide(seen := self.read()) is None:
            return seen
        with self._locked():
            registry = self._caught_up()
            draft = decide(registry)
            return registry if draft is None else self._decide(registry, draft)

    def rebuild(self) -> Registry:
        """Make the registry anew from the ledger alone, whatever is in the file. Raises RegistryError if it can't."""
        with self._locked():
            registry = self.replay()
            self.ledger.repair(_mark(registry))
            self._write(registry)
            return registry

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.folder, self._lock_timeout_s):
            self._check()
            yield

    def replay(self) -> Registry:
        """What the whole ledger adds up to. Reads only, needs no lock."""
        return self._apply_rest(Registry())

    def _decide(self, registry: Registry, draft: DecisionDraft) -> Registry:
        decision, _ = chained(_mark(registry), draft)
        after = apply(registry, decision)  # refuses before anything is written
        after = _at(after, self.ledger.append(_mark(registry), draft).end)
        self._write(after)
        _announce(decision)
        return after

    def _caught_up(self) -> Registry:
        """The registry with every decision of the ledger in it, and both in order on disk. Needs the lock."""
        registry = self.read()
        after = self._apply_rest(registry)
        self.ledger.repair(_mark(after))
        if after != registry or not self.path.exists():
            log.info("caught-up", f"{self.path} was behind the ledger", since=registry.revision, to=after.revision)
            self._write(after)
        return after

    def _apply_rest(self, registry: Registry) -> Registry:
        for decision, end in self.ledger.read(_mark(registry)):
            try:
                registry = _at(apply(registry, decision), end)
            except NotAllowed as error:
                raise RegistryError(
                    f"{self.ledger.path}, line {decision.sequence}, can't be replayed: {error}. Was it written by "
                    f"another version of ratchet, or {self.path.name} changed by hand? See `ratchet adapters verify`"
                ) from error
        return registry

    def _write(self, registry: Registry) -> None:
        replace_file(self.path, registry.encode())


def _mark(registry: Registry) -> Mark:
    return Mark(registry.revision, registry.ledger_bytes, registry.ledger_sha256)


def _at(registry: Registry, mark: Mark) -> Registry:
    return registry.model_copy(update={"ledger_bytes": mark.bytes, "ledger_sha256": mark.sha256})


def _announce(decision: Decision) -> None:
    version = getattr(decision.move, "version", None)
    log.info(
        decision.move.kind,
        f"{decision.who}: {decision.move.kind} {version or ''} ({decision.reason})".replace("  ", " "),
        agent_id=decision.agent_id,
        version=version,
        decision=decision.sequence,
    )
