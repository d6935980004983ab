"""A log that teaches is held against what was written to it and what was learned from it; forged lines teach nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import zstandard

from ratchet.adapters.folder import adapter_sha256
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.verification import verify_registry
from ratchet.logs.journal import Journal
from ratchet.logs.names import INTERACTIONS, SEALS
from ratchet.logs.seals import line_sum, read_seals
from schemas.api.adapters import Verification
from schemas.records.adapter_card import DataWindow
from schemas.records.decision import Register
from services.trainer.data.filters import DataPolicy
from services.trainer.data.journal_scan import JournalScan, Scan
from tests.ratchet.adapters.making_adapters import BASE, published
from tests.ratchet.adapters.making_decisions import decided
from tests.services.trainer.making_logs import group

POLICY = DataPolicy(agent_id="small", versions={"v1.0.0": None})
RIGHT, WRONG = b'"score":1.0', b'"score":0.0'


@dataclass
class World:
    """A logs folder whose segments hold a few groups, and adapters that learned from it."""

    root: Path

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def adapters(self) -> Path:
        return self.root / "adapters"

    async def write(self, *tasks: str, sealed: bool = True, killed: bool = False) -> None:
        """An orchestrator that logs these groups; killed, it does not end in order."""
        seals = self.adapters / SEALS if sealed else None
        journal = Journal.open(self.logs, INTERACTIONS, max_segment_bytes=3_000, seals=seals)
        for task in tasks:
            await journal.append([line[:-1] for line in group(task, (0.0, 1.0))])
        mark = self.adapters / SEALS / f"{INTERACTIONS}.mark"
        at_the_kill = mark.read_bytes() if killed else b""
        await journal.close()
        if killed:
            mark.write_bytes(at_the_kill)

    def scan(self) -> Scan:
        return JournalScan(self.logs, POLICY, seals=read_seals(self.adapters / SEALS, INTERACTIONS)).read(0, None)

    def learn(self, *, earlier: bool = False) -> None:
        """A version learns from all there is; one of an `earlier` release of Ratchet has no chain in its card."""
        ranges = [one.model_copy(update={"chain": None}) if earlier else one for one in self.scan().ranges]
        folder = published(self.adapters, data=DataWindow(ranges=tuple(ranges)))
        version, sha256 = folder.name, adapter_sha256(folder)
        register = Register(version=version, sha256=sha256, folder=f"small/{version}", parent="v1.0.0", base=BASE)
        decided(RegistryStore(self.adapters), register)

    def verify(self) -> Verification:
        return verify_registry(RegistryStore(self.adapters), AdapterLimits(64), self.logs)

    @property
    def active(self) -> Path:
        return self.logs / f"{INTERACTIONS}.jsonl"

    @property
    def oldest(self) -> Path:
        return min(self.logs.glob(f"{INTERACTIONS}-*"))

    def change(self, path: Path, how: Callable[[bytes], bytes]) -> None:
        """With write access, and care: as many bytes as before, compressed as before."""
        if path.suffix == ".zst":
            path.write_bytes(zstandard.compress(how(zstandard.decompress(path.read_bytes()))))
        else:
            path.write_bytes(how(path.read_bytes()))

    def append(self, lines: Sequence[bytes]) -> None:
        with self.active.open("ab") as log:
            log.write(b"".join(lines))


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """Sealed segments and an active file, from which v1.0.1 learned."""
    world = World(tmp_path)
    await world.write(*(f"t{number}" for number in range(9)))
    world.learn()
    return world


async def test_a_log_that_nobody_touched_is_as_it_was_written_and_learned_from(world: World) -> None:
    await world.write("more", "and more")

    assert world.oldest.suffix == ".zst"
    assert (world.verify().faults, world.verify().notes) == ([], [])


@pytest.mark.parametrize("which", ["oldest", "active"])
@pytest.mark.parametrize("earlier", [False, True])
async def test_an_edited_score_is_found_in_its_segment_and_at_the_version_that_learned_from_it(
    tmp_path: Path, which: str, earlier: bool
) -> None:
    world = World(tmp_path)
    await world.write(*(f"t{number}" for number in range(9)))
    world.learn(earlier=earlier)
    path: Path = getattr(world, which)

    world.change(path, lambda content: content.replace(RIGHT, WRONG, 1))

    written, learned = world.verify().faults
    assert written.startswith(f"{path.name} (bytes")
    assert "is not what the orchestrator wrote; small v1.0.1 learned from it" in written
    assert learned.startswith(f"small v1.0.1 learned from {path.name} (bytes")


async def test_lines_appended_while_no_orchestrator_runs_are_found_and_teach_nothing(world: World) -> None:
    world.append(group("forged", (0.0, 1.0)))
    taught = len(world.scan().groups)
    (at_once,) = world.verify().faults

    await world.write("next")

    (fault,) = world.verify().faults
    assert taught == 9
    assert "not by the orchestrator" in at_once and "not by the orchestrator" in fault
    assert len(world.scan().groups) == 10
    assert world.scan().dropped == {"lines.strange": 2}


async def test_after_a_kill_all_that_was_acknowledged_teaches_and_what_is_behind_it_does_not(world: World) -> None:
    await world.write("last", killed=True)
    world.append(group("unacknowledged", (0.0, 1.0)))

    await world.write("next")

    assert world.verify().faults == []
    assert "found after a kill" in world.verify().notes[0]
    assert len(world.scan().groups) == 11


def erase_first_line(content: bytes) -> bytes:
    """Put a tombstone, as long as the line is, in its place."""
    first, rest = content.split(b"\n", 1)
    stone = b'{"erased_sha256":"%b"' % line_sum(first).hex().encode()
    return stone.ljust(len(first) - 1) + b"}\n" + rest


async def test_an_erased_line_leaves_the_sums_as_they_were_and_is_no_bad_line(world: World) -> None:
    world.change(world.oldest, erase_first_line)

    assert world.verify().faults == []
    assert world.verify().notes == ["1 lines of agent_interactions were erased; their sums are as they were"]
    assert world.scan().dropped["lines.erased"] == 1
    assert world.scan().bad_lines == 0


async def test_a_log_from_before_there_were_seals_is_verified_as_far_as_a_version_learned_from_it(
    tmp_path: Path,
) -> None:
    # given a log that an earlier release wrote, and a version that learned from it
    world = World(tmp_path)
    await world.write(*(f"t{number}" for number in range(9)), sealed=False)
    world.learn(earlier=True)
    await world.write("sealed")

    # then what can't be checked is said, and what was learned from is checked
    found = world.verify()
    assert found.faults == []
    assert "before there were seals" in found.notes[0]
    world.change(world.oldest, lambda content: content.replace(RIGHT, WRONG, 1))
    (fault,) = world.verify().faults
    assert fault.startswith("small v1.0.1 learned from")


async def test_what_was_cut_off_and_seals_that_were_made_to_fit_are_found(world: World) -> None:
    # given an older copy of the log, without its newest lines, which goes on
    world.active.write_bytes(b"")
    (at_once, *_) = world.verify().notes
    await world.write(*(f"next{number}" for number in range(4)))
    (later, *_) = world.verify().notes

    # when somebody takes the note of it away
    seals = world.adapters / SEALS / f"{INTERACTIONS}.seals.jsonl"
    (learned,) = world.verify().faults
    seals.write_bytes(seals.read_bytes().replace(b'"kind":"cut"', b'"kind":"began"'))

    assert "was cut off" in at_once
    assert learned.startswith("small v1.0.1 learned from")
    assert "was cut off" in later
    assert "was changed after it was written" in world.verify().faults[0]


def test_a_disk_that_takes_no_seals_keeps_no_line_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "adapters").write_text("no folder")

    asyncio.run(World(tmp_path).write("t1"))

    assert (tmp_path / "logs" / f"{INTERACTIONS}.jsonl").read_bytes().count(b"\n") == 2
