"""The adapter registry on disk: read it without waiting, change it one decision at a time.

The ledger of decisions is written first and is the truth; adapter_registry.json is what it adds up to, replaced
atomically afterwards. A crash between the two leaves the registry one decision behind, which the next change (or
`open`) catches up. Writers, in any number of processes, take turns by a lock on the folder; readers take none.

Every call blocks on the disk: from an event loop, call it in a thread. Which moves are allowed is in registry_moves.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Self

from ratchet.adapters.decisions import DecisionLedger, Mark, chain_decision
from ratchet.adapters.draw_secrets import DrawSecrets
from ratchet.adapters.registry_moves import apply
from ratchet.adapters.signatures import LedgerHead, Signer, Signing
from ratchet.files.atomic_file import replace_file
from ratchet.files.folder_lock import LOCK_TIMEOUT_S, lock_folder
from ratchet.service.errors import NotAllowed, RegistryConflict, RegistryError
from ratchet.service.settings import FleetSettings
from ratchet.service.telemetry import Log
from schemas.messages.base import DecodeError
from schemas.records.decision import Decision, DecisionDraft, SignWith
from schemas.records.registry import Registry

FILE_NAME = "adapter_registry.json"
NEW_KEY = "the folder of keys holds another key than the one that signed so far"

log = Log(__name__)


class RegistryStore:
    def __init__(
        self,
        adapters_dir: Path,
        signing: Signing | None = None,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Without `signing` a ledger that is signed can be read, but not written.

        `check` raises what keeps this process from changing it, and is asked with the lock in hand.
        """
        self.folder = adapters_dir
        self.path = adapters_dir / FILE_NAME
        self.ledger = DecisionLedger(adapters_dir, signing)
        self._signing = signing
        self.draws = DrawSecrets(signing.keys_dir) if signing else None
        """Null where nobody said where the keys are: then draws have no secret."""
        self._seen: tuple[bytes, Registry] | None = None
        self._lock_timeout_s = lock_timeout_s
        self._check = check

    @classmethod
    def from_settings(cls, settings: FleetSettings, check: Callable[[], None] = lambda: None) -> Self:
        """The fleet's."""
        return cls(settings.adapters_dir, Signing(settings.decision_keys_dir, settings.logs_dir), check=check)

    def read(self) -> Registry:
        """Never waits, never sees half a change. Raises RegistryError if the file is damaged.

        Where there is no file yet, or no longer, the ledger is replayed instead: losing it must not lose the primary.
        The same bytes are decoded once: each turn reads them, and each task that names a version which is not offered.
        """
        try:
            return self._decode(self.path.read_bytes())
        except FileNotFoundError:
            registry = self.replay()
            return self.read() if self.path.exists() else registry  # a writer came first: the file's word counts
        except DecodeError as error:
            raise RegistryError(
                f"{self.path} is damaged ({error.reason}): `ratchet adapters rebuild` makes it anew from the decisions"
            ) from None

    def _decode(self, data: bytes) -> Registry:
        if (seen := self._seen) is None or seen[0] != data:
            self._seen = seen = data, Registry.decode(data)
        return seen[1]

    def open(self) -> Registry:
        """Catch up with the ledger after a crash, and check the whole of it; for the start of a service.

        The first start makes the key: decisions are signed from then on. Raises RegistryError if the ledger is broken,
        was not signed by who may, or if the registry is not what the ledger adds up to.
        """
        with self._lock():
            registry = self._caught_up()
            if self._signing is not None:
                self._begin_signing(self._signing, _mark(registry))
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
        with self._lock():
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
        with self._lock():
            registry = self._caught_up()
            draft = decide(registry)
            return registry if draft is None else self._decide(registry, draft)

    def rebuild(self) -> Registry:
        """Make the registry anew from the ledger alone, whatever is in the file. Raises RegistryError if it can't."""
        with self._lock():
            registry = self.replay()
            self.ledger.repair(_mark(registry))
            self._write(registry)
            return registry

    def rotate_key(self, draft: Callable[[str], DecisionDraft]) -> Registry:
        """A new key from now on, which the old one names. `draft`: of its decision, of the new public key.

        Raises RegistryError, DiskFull, JournalError. A crash half-way leaves a key that names itself when it
        first signs.
        """
        with self._lock():
            registry = self._caught_up()
            signing = self._need_signing()
            self._begin_signing(signing, _mark(registry))
            old = signing.signer()
            return self._append(registry, draft(signing.make_key().key), old)

    def accept(self, draft: Callable[[str], DecisionDraft]) -> Registry:
        """Take the ledger as it stands, whoever signed it and wherever it ends; the registry is made anew from it.

        A lost key is made anew. `draft`: of the decision to do so, of the public key that signs from it on. Raises
        RegistryError if the chain is broken.
        """
        with self._lock():
            registry = self._apply_rest(Registry(), only_chain=True)
            self.ledger.repair(_mark(registry))
            signing = self._need_signing()
            signer = signing.signer() or signing.make_key()
            signing.set_head(_head(_mark(registry), registry.revision))
            return self._append(registry, draft(signer.key), signer)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with lock_folder(self.folder, self._lock_timeout_s):
            self._check()
            yield

    def replay(self) -> Registry:
        """Replay the whole ledger. Reads only, needs no lock."""
        return self._apply_rest(Registry())

    def _decide(self, registry: Registry, draft: DecisionDraft) -> Registry:
        signer = self.ledger.signer(_mark(registry))
        if signer and registry.ledger_key not in (None, signer.key):  # who keeps the folder of keys has put another in
            changed = draft.model_copy(update={"move": SignWith(key=signer.key), "reason": NEW_KEY, "evidence": {}})
            apply(registry, chain_decision(_mark(registry), draft)[0])  # no new key for what is not allowed
            registry = self._append(registry, changed, signer)
        return self._append(registry, draft, signer)

    def _append(self, registry: Registry, draft: DecisionDraft, signer: Signer | None) -> Registry:
        decision, _ = chain_decision(_mark(registry), draft)
        after = apply(registry, decision)  # refuses before anything is written
        draft = self._with_secrets(draft, registry, after)
        after = _set_mark(after, self.ledger.append(_mark(registry), draft, signer).end)
        self._write(after)
        _announce(decision)
        return after

    def _with_secrets(self, draft: DecisionDraft, before: Registry, after: Registry) -> DecisionDraft:
        """Tell the secrets of the experiments that end with it."""
        running = {one.experiment_id for one in after.agent(draft.agent_id).running}
        ended = [one for one in before.agent(draft.agent_id).running if one.experiment_id not in running]
        secrets = {one.experiment_id: self.draws.secret(one) for one in ended} if self.draws else {}
        draws = {name: secret for name, secret in secrets.items() if secret}
        return draft.model_copy(update={"draws": draws}) if draws else draft

    def _need_signing(self) -> Signing:
        if self._signing is None:
            raise RegistryError("where the keys and the head of the ledger are was not said: see RATCHET_DECISION_KEYS")
        return self._signing

    def _begin_signing(self, signing: Signing, end: Mark) -> None:
        """A key, and a head to hold against the ledger, where there was none."""
        if end.key is None and signing.signer() is None:
            key = signing.make_key().key
            log.info("decisions-signed", f"decisions are signed from here on, by key {key}", since=end.sequence + 1)
        self.ledger.signer(end)
        if signing.head() is None:
            unsigned = sum(1 for _ in takewhile(lambda line: line.decision.key is None, self.ledger.read()))
            signing.set_head(_head(end, unsigned))

    def _caught_up(self) -> Registry:
        """The registry with every decision of the ledger in it, and both in order on disk. Needs the lock."""
        registry = self.read()
        after = self._apply_rest(registry)
        self.ledger.repair(_mark(after))
        self.ledger.advance_head(_mark(after))
        if after != registry or not self.path.exists():
            log.info("caught-up", f"{self.path} was behind the ledger", since=registry.revision, to=after.revision)
            self._write(after)
        return after

    def _apply_rest(self, registry: Registry, *, only_chain: bool = False) -> Registry:
        for decision, end in self.ledger.read(_mark(registry), only_chain=only_chain):
            try:
                registry = _set_mark(apply(registry, decision), end)
            except NotAllowed as error:
                raise RegistryError(
                    f"{self.ledger.path}, line {decision.sequence}, can't be replayed: {error}. Was it written by "
                    f"another version of ratchet, or {self.path.name} changed by hand? See `ratchet adapters verify`"
                ) from error
        return registry

    def _write(self, registry: Registry) -> None:
        replace_file(self.path, registry.encode())


def _mark(registry: Registry) -> Mark:
    return Mark(registry.revision, registry.ledger_bytes, registry.ledger_sha256, registry.ledger_key)


def _set_mark(registry: Registry, mark: Mark) -> Registry:
    stands = {"ledger_bytes": mark.bytes, "ledger_sha256": mark.sha256, "ledger_key": mark.key}
    return registry.model_copy(update=stands)


def _head(end: Mark, signed_after: int) -> LedgerHead:
    return LedgerHead(signed_after=signed_after, sequence=end.sequence, sha256=end.sha256)


def _announce(decision: Decision) -> None:
    name = getattr(decision.move, "name", "")
    log.info(
        decision.move.kind,
        f"{decision.who}: {decision.move.kind} {name} ({decision.reason})".replace("  ", " "),
        agent_id=decision.agent_id,
        version=getattr(decision.move, "version", None),
        decision=decision.sequence,
    )
