"""What users see and what lies on their disks is what it was: see `tests/golden/__main__.py`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ratchet.adapters.decisions import DecisionLedger, Mark, chain_decision
from ratchet.adapters.signatures import Signing
from ratchet.experiments.records import experiments
from ratchet.experiments.replay import replay_experiment
from ratchet.logs.best_answer import choose_answer
from schemas import Task
from schemas.records.decision import DecisionDraft
from tests.golden.logged import LINES, REWRITERS, rewritten
from tests.golden.surface import SURFACE
from tests.services.orchestrator.house import House

FLEET = Path(__file__).parent / "fleet"
RENEW = "a change that users see: type `python -m tests.golden`, and say it in CHANGELOG.md"


@pytest.mark.parametrize("path", SURFACE, ids=lambda path: path.stem)
def test_what_users_see_is_what_it_was(path: Path) -> None:
    assert SURFACE[path]().splitlines() == path.read_text().splitlines(), RENEW


@pytest.mark.parametrize("kind", REWRITERS)
def test_a_logged_line_is_read_and_written_again_the_same(kind: str) -> None:
    assert rewritten(kind).splitlines() == (LINES / f"{kind}.jsonl").read_bytes().splitlines(), RENEW


@pytest.fixture
def fleet(tmp_path: Path) -> House:
    """The folders that a fleet of version 0.1.0 left, under an orchestrator of today that is not open yet."""
    shutil.copytree(FLEET / "logs", tmp_path, dirs_exist_ok=True)
    shutil.copytree(FLEET / "adapters", tmp_path / "adapters")
    house = House(tmp_path)
    shutil.copytree(FLEET / "signing", house.settings.decision_keys_dir, dirs_exist_ok=True)
    (house.settings.decision_keys_dir / "signing-key.json").chmod(0o600)
    return house


def test_a_verdict_is_decided_again_from_the_logs_and_every_decision_is_signed_again_byte_for_byte(
    fleet: House,
) -> None:
    signing = Signing(fleet.settings.decision_keys_dir, fleet.folder)
    ledger = DecisionLedger(fleet.folder / "adapters", signing)
    decisions = [line.decision for line in ledger.read()]
    verdicts = {
        record.ended.sequence: replay_experiment(record.running, fleet.folder).decision.model_dump(mode="json")
        for record in experiments(decisions)
        if record.ended
    }
    assert len(verdicts) == 1

    mark, written = Mark(), b""
    for line in ledger.read():
        draft = DecisionDraft.model_validate(line.decision.model_dump(include=set(DecisionDraft.model_fields)))
        evidence = verdicts.get(line.decision.sequence, draft.evidence)
        written += chain_decision(mark, draft.model_copy(update={"evidence": evidence}), signing.signer())[1]
        mark = line.end

    assert written == ledger.path.read_bytes()


async def test_todays_orchestrator_takes_the_fleet_over(fleet: House) -> None:
    lines = [line for line in fleet.logged() if line.task_id == "task-1"]

    await fleet.open()
    try:
        await fleet.submit(Task(task_id="task-1", input="x"))
        (result,) = await fleet.results()
        adapters = fleet.orchestrator.parts.promoters["small"].arms.adapters
    finally:
        await fleet.close()

    assert result.response == choose_answer(lines).response
    assert adapters.primary == "v1.0.1"
