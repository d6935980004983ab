"""The registry on disk: no lost update, exactly one primary at any time, the ledger's word counts."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ratchet.adapters.registry import RegistryStore
from ratchet.files.folder_lock import FolderLock
from ratchet.service.errors import NotAllowed, RegistryConflict, RegistryError
from ratchet.service.failpoint import REGISTRY_STEPS
from schemas.records.decision import DecisionDraft, Freeze, Promote, RollBack, Unfreeze
from schemas.records.registry import EntryState, Registry
from tests.ratchet.adapters.making_decisions import decided, draft, register, to_canary, to_primary


def primaries(registry: Registry, agent_id: str = "small") -> list[str]:
    entries = registry.agent(agent_id).versions.values()
    return [entry.version for entry in entries if entry.state is EntryState.STABLE]


def test_a_fresh_agent_runs_the_base_model(tmp_path: Path) -> None:
    registry = RegistryStore(tmp_path).open()
    assert (registry.revision, registry.agent("small").primary, primaries(registry)) == (0, "v1.0.0", ["v1.0.0"])


def test_a_change_is_there_for_every_later_reader(tmp_path: Path) -> None:
    # when a version is registered with evidence that holds nulls and floats
    RegistryStore(tmp_path).change(0, draft(register("v1.0.1"), loss=0.1, kl=None))
    # then another store reads it, and the ledger adds up to the same
    store = RegistryStore(tmp_path)
    assert store.read().agent("small").versions["v1.0.1"].state == "trained"
    assert store.open() == store.replay() == store.read()


def test_what_has_not_changed_is_decoded_once_and_every_change_is_seen(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    decided(store, register("v1.0.1"))
    before = store.read()
    assert store.read() is before

    decided(RegistryStore(tmp_path), register("v1.0.2"))
    assert store.read() == store.replay() != before


def test_a_change_on_an_old_revision_is_refused(tmp_path: Path) -> None:
    # given that somebody else decided something since the registry was read
    store = RegistryStore(tmp_path)
    decided(store, register("v1.0.1"))
    with pytest.raises(RegistryConflict, match="revision 1, not 0"):
        store.change(0, draft(register("v1.0.2")))
    assert store.read().revision == 1


def test_what_is_not_allowed_leaves_no_trace(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    decided(store, register("v1.0.1"))
    before = store.ledger.path.read_bytes()
    with pytest.raises(NotAllowed, match=r"agent small: v1\.0\.1 is trained, so it can't become stable"):
        store.change(1, draft(Promote(version="v1.0.1"), who="operator:ann"))
    with pytest.raises(RegistryError, match="no UTF-8"):
        store.change(1, draft(Freeze(), file="\ud800"))
    assert (store.read().revision, store.ledger.path.read_bytes()) == (1, before)


def test_update_decides_anew_when_another_came_first(tmp_path: Path) -> None:
    # given a decision that is overtaken while it is made
    store, seen = RegistryStore(tmp_path), []

    def decide(registry: Registry) -> DecisionDraft:
        seen.append(registry.revision)
        if len(seen) == 1:
            decided(store, register("v1.0.1"))
        return draft(register(f"v1.0.{registry.revision + 1}"))

    # then it is made again on the newer registry, and both are in
    assert set(store.update(decide).agent("small").versions) == {"v1.0.0", "v1.0.1", "v1.0.2"}
    assert seen == [0, 1]


def test_update_may_decide_to_do_nothing(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    assert store.update(lambda registry: None) == Registry()
    assert not store.path.exists()


PROMOTION = """
import sys
from pathlib import Path
from schemas.records.decision import Promote
from ratchet.adapters.registry import RegistryStore
from tests.ratchet.adapters.making_decisions import draft
promote = draft(Promote(version="v1.0.1", experiment_id="canary-v1.0.1"))
RegistryStore(Path(sys.argv[1])).update(lambda registry: promote)
"""


@pytest.mark.parametrize("step", [step for step in REGISTRY_STEPS if not step.startswith("adapter")])
def test_a_promotion_killed_at_each_step_leaves_exactly_one_primary(tmp_path: Path, step: str) -> None:
    # given a candidate that is being promoted by a process that dies at the step
    decided(RegistryStore(tmp_path), *to_canary("v1.0.1"))
    script = [sys.executable, "-c", PROMOTION, str(tmp_path)]
    assert subprocess.run(script, env={"RATCHET_FAILPOINT": step}, check=False).returncode == -9
    # then a reader sees one primary, before and after the registry caught up with the ledger
    store = RegistryStore(tmp_path)
    assert primaries(store.read()) in (["v1.0.0"], ["v1.0.1"])
    # and the decision, which was in the ledger, is carried out
    registry = store.open()
    assert (primaries(registry), registry.agent("small").previous) == (["v1.0.1"], "v1.0.0")
    assert store.read() == store.replay()


def test_four_writers_killed_at_any_moment_lose_no_write_that_returned(tmp_path: Path) -> None:
    # when four processes promote and roll back without end, and each is killed 15 times while the others write
    script = [sys.executable, "-m", "tests.ratchet.adapters.killed_writers", str(tmp_path), "60"]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=200, check=False)
    # then a reader saw exactly one primary at any time, and the chain is whole
    assert ended.returncode == 0, ended.stderr
    store = RegistryStore(tmp_path / "adapters")
    revision = store.open().revision
    decisions = {entry.decision.sequence: entry.decision.evidence for entry in store.ledger.read()}
    assert list(decisions) == list(range(1, revision + 1))
    # and what returned to its writer is in it, at its place, with some that a kill overtook on the way back
    told = [line.split() for line in ended.stdout.splitlines()]
    for sequence, writer, number in told:
        assert decisions[int(sequence)] == {"writer": writer, "number": int(number)}
    assert {writer.partition(".")[0] for _, writer, _ in told} == set("0123")
    assert 20 <= len(told) < revision - 3


def test_a_lost_registry_file_does_not_lose_the_primary(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    decided(store, *to_primary("v1.0.1"))
    store.path.unlink()
    assert store.read().agent("small").primary == "v1.0.1"
    assert store.open().revision == 4
    assert store.path.exists()


@pytest.mark.parametrize("content", [b"", b'{"revision": 1, "agents"', b"\x00" * 512, b'{"revision": -1}'])
def test_a_damaged_registry_is_refused_and_rebuilt_from_the_ledger(tmp_path: Path, content: bytes) -> None:
    store = RegistryStore(tmp_path)
    before = decided(store, *to_primary("v1.0.1"))
    store.path.write_bytes(content)
    with pytest.raises(RegistryError, match="adapters rebuild"):
        store.read()
    assert store.rebuild() == before == store.read()


def test_a_registry_changed_by_hand_is_found_at_the_start(tmp_path: Path) -> None:
    # given somebody who moved the primary in the file to an earlier decision
    store = RegistryStore(tmp_path)
    decided(store, *to_primary("v1.0.1"))
    store.path.write_text(store.path.read_text().replace('"decision": 4,', '"decision": 3,'))
    with pytest.raises(RegistryError, match="changed by hand"):
        store.open()
    assert store.rebuild().agent("small").versions["v1.0.1"].decision == 4


def test_a_registry_with_two_primaries_can_not_even_be_read(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)
    decided(store, *to_primary("v1.0.1"))
    fields = json.loads(store.path.read_text())
    fields["agents"]["small"]["versions"]["v1.0.0"]["state"] = "stable"
    store.path.write_text(json.dumps(fields))
    with pytest.raises(RegistryError, match="in the state stable are"):
        store.read()


def test_a_ledger_that_lost_its_newest_lines_is_refused(tmp_path: Path) -> None:
    # given a ledger restored from an older copy
    store = RegistryStore(tmp_path)
    decided(store, *to_canary("v1.0.1"))
    lines = store.ledger.path.read_bytes().splitlines(keepends=True)
    store.ledger.path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(RegistryError, match="the newest are missing"):
        store.open()
    # when the operator accepts the loss
    assert store.rebuild().revision == 2
    # then it goes on from there
    assert decided(store, register("v1.0.2")).revision == 3


def test_a_torn_decision_was_never_made(tmp_path: Path) -> None:
    # given a ledger whose last line a crash cut
    store = RegistryStore(tmp_path)
    before = decided(store, *to_canary("v1.0.1"))
    with store.ledger.path.open("ab") as file:
        file.write(b'{"agent_id":"small","at":"2026-0')
    assert store.replay() == before
    # then the next change goes on as if it had not been, and keeps the piece in quarantine
    assert store.open() == before
    assert decided(store, RollBack(version="v1.0.1")).revision == 4
    assert "2026-0" in (tmp_path / "quarantine.jsonl").read_text()


DISK_FULL = """
import resource, sys
from pathlib import Path
from schemas.records.decision import Freeze
from ratchet.service.errors import DiskFull
from ratchet.adapters.registry import RegistryStore
from tests.ratchet.adapters.making_decisions import draft
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    RegistryStore(Path(sys.argv[1])).update(lambda registry: draft(Freeze()))
except DiskFull as error:
    print(error)
"""


def freeze_with_room_for(folder: Path, size: int) -> str:
    """What a process says that may write no file longer than `size` bytes."""
    script = [sys.executable, "-c", DISK_FULL, str(folder), str(size)]
    return subprocess.run(script, capture_output=True, text=True, check=True).stdout


def test_a_full_disk_takes_back_half_a_decision(tmp_path: Path) -> None:
    # given room for no more than a part of the ledger's next line
    store = RegistryStore(tmp_path)
    before = decided(store, *to_canary("v1.0.1"))
    size = store.ledger.path.stat().st_size
    # when a decision is made, then it fails with a sentence, and was never made: no piece of it stays
    assert "can't grow" in freeze_with_room_for(tmp_path, size + 50)
    assert store.ledger.path.stat().st_size == size
    assert store.open() == before


def test_a_decision_that_found_no_room_in_the_registry_takes_effect_later(tmp_path: Path) -> None:
    # given room in the ledger, but not for the registry, which is longer
    store = RegistryStore(tmp_path)
    before = decided(store, register("v1.0.1"))
    assert "can't grow" in freeze_with_room_for(tmp_path, store.path.stat().st_size + 10)
    # then readers see what was before until there is room
    assert store.read() == before
    assert store.open().agent("small").frozen is not None


def test_a_hanging_writer_is_named_and_readers_do_not_wait_for_it(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path, lock_timeout_s=0.05)
    hanging = FolderLock(tmp_path)
    assert hanging.try_acquire()
    assert store.read().revision == 0
    with pytest.raises(RegistryError, match="has been held by pid"):
        store.change(0, draft(Freeze()))
    hanging.release()


def test_threads_of_one_process_take_turns_too(tmp_path: Path) -> None:
    store = RegistryStore(tmp_path)

    def toggle() -> None:
        for _ in range(10):
            store.update(lambda registry: draft(Unfreeze() if registry.agent("small").frozen else Freeze()))

    threads = [threading.Thread(target=toggle) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.open().revision == 40
