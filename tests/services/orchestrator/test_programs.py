"""A program's way: asked for, tried on live traffic, promoted because it is proved better, or sent away."""

from __future__ import annotations

from pathlib import Path

from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.verification import verify_registry
from ratchet.experiments.records import experiments
from services.cli.experiment.command import check
from tests.services.orchestrator.learning_house import AGENT
from tests.services.orchestrator.program_house import ProgramHouse, program_house, revision
from tests.waiting import until


def moves(house: ProgramHouse) -> list[str]:
    return [line.decision.move.kind for line in house.store.ledger.read()]


def replays(house: ProgramHouse) -> list[bool]:
    """Of every experiment that a verdict of its own ended: whether the logs give it again, bit for bit."""
    found = experiments(line.decision for line in house.store.ledger.read())
    ended = [one for one in found if one.ended is not None and one.verdict is not None]
    return [check(one, house.folder).difference is None for one in ended]


async def test_a_better_program_is_promoted_by_live_traffic_and_watched_from_then_on(tmp_path: Path) -> None:
    async with program_house(tmp_path, {"old": 0.4, "new": 0.8}, watch_share=0.05) as house:
        await house.chosen("old")
        house.try_program("new", "it thinks twice")
        await house.becomes("new", "canary")

        await house.traffic(stop_when=lambda: house.adapters.watch is not None)
        so_far = house.submitted
        await house.traffic(stop_when=lambda: house.submitted > so_far + 40)

        assert house.adapters.watch is not None and house.adapters.watch.arms == ("new", "old")
        assert moves(house) == [
            *("promote_program", "try_program", "start_experiment"),
            *("promote_program", "start_experiment"),
        ]
        assert (house.standing("new"), house.programs.previous, house.adapters.primary) == ("stable", "old", "v1.0.0")
        # every answer of an experiment is of the program that was drawn, in the revision that it is about
        tried = [line for line in house.logged() if line.arm.program_revision is not None]
        assert {(line.program, line.arm.program, line.arm.program_revision) for line in tried} == {
            (name, name, revision(name)) for name in ("old", "new")
        }
        assert {line.arm.adapter_version for line in tried} == {"v1.0.0"}
        # and all of it can be checked afterwards: the verdicts from the logs, the decisions by their signatures
        assert replays(house) == [True]
        found = verify_registry(house.store, AdapterLimits(64))
        assert (found.ok, found.signed) == (True, 5)


async def test_an_operator_calls_an_experiment_off_and_a_restart_goes_on_with_the_next(tmp_path: Path) -> None:
    async with program_house(tmp_path, {"old": 0.4, "new": 0.8}) as house:
        await house.chosen("old")
        house.try_program("new", "it thinks twice")
        await house.becomes("new", "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        house.by_hand.roll_back("programs", "new", "not today")
        await until(lambda: house.orchestrator.parts.promoters[AGENT].arms.experiment is None)
        assert (house.standing("new"), house.programs.primary) == ("rolled_back", "old")
        house.try_program("new", "today")
        await house.becomes("new", "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 80)
        live = house.orchestrator.parts.promoters[AGENT].arms.experiment
        assert live is not None
        await until(lambda: not live.awaited_audits)
        units = live.evidence.units
    async with program_house(tmp_path, {"old": 0.4, "new": 0.8}) as house:
        house.submitted = 80
        again = house.orchestrator.parts.promoters[AGENT].arms.experiment
        assert again is not None and again.evidence.units == units > 0


async def test_an_experiment_about_a_program_that_was_changed_ends_without_a_winner(tmp_path: Path) -> None:
    async with program_house(tmp_path, {"old": 0.4, "new": 0.8}) as house:
        await house.chosen("old")
        house.try_program("new", "it thinks twice")
        await house.becomes("new", "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 20)
        house.has["new"] = revision("new", 2)

        await house.becomes("new", "aborted")

        reason = [line.decision.reason for line in house.store.ledger.read()][-1]
        assert "program new was changed" in reason
        # and it may be tried again as it is now
        house.try_program("new", "as it is now")
        await house.becomes("new", "canary")
        assert house.programs.entries["new"].revision == revision("new", 2)


async def test_a_program_that_fails_on_users_first_tasks_sees_no_traffic(tmp_path: Path) -> None:
    async with program_house(tmp_path, {"old": 0.8, "broken": 0.0}) as house:
        await house.chosen("old")
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        house.try_program("broken", "by mistake")

        await house.becomes("broken", "rejected")

        decided = [line.decision for line in house.store.ledger.read()][-1]
        assert (decided.move.kind, "harm, most of all in score" in decided.reason) == ("reject_program", True)
        asked = [line for line in house.logged() if line.program == "broken"]
        assert asked and all((line.arm.experiment_id or "").startswith("validation:") for line in asked)
        assert moves(house) == ["promote_program", "try_program", "reject_program"]
