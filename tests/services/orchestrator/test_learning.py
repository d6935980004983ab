"""A trained adapter's way: checked, tried on live traffic, promoted because it is proved better, or sent away."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import pytest
from prometheus_client import REGISTRY

from ratchet.adapters.publish import registration
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.replay import plan_of, replay_experiment
from ratchet.files.folder_lock import lock_folder
from schemas import Result, Task, TrainRequest
from schemas.messages.task import AnswerFormat
from schemas.records.adapter_card import DataRange, DataWindow
from schemas.records.decision import DecisionDraft, Freeze, Promote, Unfreeze, Validate
from tests.ratchet.adapters.hostile_adapters import (
    Hostile,
    many_tensors,
    pipe,
    spoiled_config,
    unsound,
    version_link,
    with_sparse_entry,
)
from tests.ratchet.adapters.making_adapters import NOON, files, published
from tests.ratchet.adapters.making_decisions import decided
from tests.services.orchestrator.learning_house import AGENT, LearningHouse, learning_house
from tests.waiting import settled, until

QUICK = {"experiment_min_units_per_arm": 10, "watch_share": 0.0}


def kinds(house: LearningHouse) -> list[str]:
    return [decision.move.kind for decision, _ in house.store.ledger.read()]


async def test_a_better_adapter_is_promoted_by_live_traffic_and_watched_from_then_on(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.4, "v1.0.1": 0.8}, **QUICK | {"watch_share": 0.05}) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 20)
        version = await house.trained()
        await house.reach(version, "canary")

        await house.traffic(stop_when=lambda: house.adapters.watch is not None)

        assert (house.adapters.primary, house.state(version)) == (version, "stable")
        assert house.adapters.watch is not None and house.adapters.watch.arms == (version, "v1.0.0")
        assert (house.adapters.watch.share, house.adapters.experiment) == (0.9, None)
        assert kinds(house) == ["register", "validate", "start_experiment", "promote", "start_experiment"]
        promote = next(d for d, _ in house.store.ledger.read() if d.move.kind == "promote")
        assert promote.evidence["evidence"]["gain_score"] >= 20
        assert house.adapters.previous == "v1.0.0"


async def test_what_an_operator_promotes_is_watched_beside_the_version_before_it(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.8, "v1.0.1": 0.1}, **QUICK | {"watch_share": 0.05}) as house:
        version = await house.trained()
        await house.reach(version, "canary")
        operator = {"agent_id": AGENT, "who": "operator:ada", "at": NOON, "reason": "sure of it"}
        house.store.update(lambda _: DecisionDraft.model_validate(operator | {"move": Promote(version=version)}))

        await until(lambda: house.adapters.watch is not None)
        await house.traffic(stop_when=lambda: house.state(version) == "rolled_back")

        assert house.adapters.primary == "v1.0.0"


async def test_a_restart_in_the_middle_of_an_experiment_changes_nothing(tmp_path: Path) -> None:
    quality = {"v1.0.0": 0.4, "v1.0.1": 0.7}
    async with learning_house(tmp_path, quality, **QUICK) as house:
        version = await house.trained()
        await house.reach(version, "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 60)
        live = house.orchestrator.parts.promoters[AGENT].arms.experiment
        assert live is not None
        await until(lambda: not live.awaited_audits)
        before = live.decision

    async with learning_house(tmp_path, quality, **QUICK) as house:
        again = house.orchestrator.parts.promoters[AGENT].arms.experiment
        assert again is not None
        assert again.decision == before
        house.submitted = 0
        running = house.adapters.experiment
        assert running is not None
        assert replay_experiment(running, tmp_path).decision == before


async def test_an_experiment_whose_log_is_gone_is_aborted_and_the_fleet_goes_on(
    tmp_path: Path,
) -> None:
    """This happens after a restored backup, or with another path for the logs."""
    quality = {"v1.0.0": 0.5, "v1.0.1": 0.5}
    async with learning_house(tmp_path, quality, **QUICK) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 20)
        version = await house.trained()
        await house.reach(version, "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 40)
    for path in (*tmp_path.glob("*.jsonl"), *tmp_path.glob("index.sqlite*")):
        path.unlink()

    async with learning_house(tmp_path, quality, **QUICK) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 20)

        conclude = next(d for d, _ in house.store.ledger.read() if d.move.kind == "conclude")
        assert "began in another logs folder, or its part of the log is gone" in conclude.reason
        assert "no line starts at byte" in conclude.reason
        assert house.adapters.primary == "v1.0.0"
        assert house.adapters.candidate is None


async def test_a_training_window_that_began_in_another_log_begins_anew(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=10) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 20)
        await until(lambda: len(house.bus.deliveries_published("training")) == 1)
        await house.refused("small-0", "not yet")
    for path in tmp_path.glob("*.jsonl"):
        path.unlink()

    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=10) as house:
        assert house.orchestrator.parts.promoters[AGENT].training._state.since == 0


async def test_frozen_nothing_is_promoted_until_the_operator_lifts_it(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.3, "v1.0.1": 0.9}, **QUICK) as house:
        version = await house.trained()
        await house.reach(version, "canary")
        operator = {"agent_id": AGENT, "who": "operator:ada", "at": NOON, "reason": "a holiday"}
        house.store.update(lambda _: DecisionDraft.model_validate(operator | {"move": Freeze()}))

        arms = house.orchestrator.parts.promoters[AGENT].arms
        await house.traffic(stop_when=lambda: arms.experiment is not None and arms.experiment.final is not None)
        await house.traffic(stop_when=lambda: True)
        assert house.adapters.primary == "v1.0.0"
        house.store.update(lambda _: DecisionDraft.model_validate(operator | {"move": Unfreeze()}))
        await until(lambda: house.adapters.primary == version)


async def test_an_adapter_changed_after_it_was_registered_never_sees_traffic(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, **QUICK) as house:
        version = await house.trained()
        weights = tmp_path / "adapters" / AGENT / version / "adapter_model.safetensors"
        weights.chmod(0o644)
        weights.write_bytes(files()["adapter_model.safetensors"][:-1])  # type: ignore[index]

        await house.reach(version, "rejected", "unknown")

        assert house.adapters.primary == "v1.0.0"
        assert house.adapters.candidate is None


async def test_an_adapter_worse_on_the_golden_set_never_sees_traffic(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.7, "v1.0.1": 0.4}, **QUICK) as house:
        golden = tmp_path / "adapters" / AGENT / "golden.jsonl"
        golden.parent.mkdir(parents=True)
        golden.write_text("".join(json.dumps({"task_id": f"g{n}", "input": "x"}) + "\n" for n in range(40)))
        version = await house.trained()

        await house.reach(version, "rejected")

        (why,) = [d.reason for d, _ in house.store.ledger.read() if d.move.kind == "reject"]
        assert "harm, most of all in score" in why
        assert house.bus.deliveries_published("results") == []


async def test_a_candidate_answers_what_users_asked_before_any_user_gets_its_answers(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.8, "v1.0.1": 0.1, "v1.0.2": 0.75}, **QUICK) as house:
        # given that tasks of users were answered and scored
        await house.traffic(stop_when=lambda: house.submitted >= 60)

        # when one is far worse on them, then it is refused after few, and no user gets its answers
        await house.reach(await house.trained(seed=1), "rejected")
        (why,) = [d for d, _ in house.store.ledger.read() if d.move.kind == "reject"]
        assert "harm, most of all in score" in why.reason
        assert why.evidence["prompts"] < 20
        told = {Result.decode(result.body).adapter_version for result in house.bus.deliveries_published("results")}
        assert told == {"v1.0.0"}

        # and one of which no harm is proved is left to live traffic, by prompts that judged no other
        await house.reach(await house.trained(seed=2), "canary")
        asked: dict[str, set[str]] = {"v1.0.1": set(), "v1.0.2": set()}
        for line in house.logged():
            if line.task_id.startswith("replay/") and line.adapter_version in asked:
                asked[line.adapter_version].add(line.task_id.rpartition("/")[2])
        assert asked["v1.0.1"] and asked["v1.0.2"]
        assert not asked["v1.0.1"] & asked["v1.0.2"]

        # whose evidence its experiment takes over
        assert house.adapters.experiment is not None
        taken_over = plan_of(house.adapters.experiment).replayed
        assert taken_over is not None
        assert (taken_over.prompts, taken_over.types) == (len(asked["v1.0.2"]), {"kind": len(asked["v1.0.2"])})


async def test_a_replay_is_evidence_against_the_primary_that_it_began_with(tmp_path: Path) -> None:
    quality = {"v1.0.0": 0.4, "v1.0.1": 0.45, "v1.0.2": 0.45}
    async with learning_house(tmp_path, quality, **QUICK) as house:
        # given a candidate that is held against the primary's logged answers
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        await house.reach(await house.trained(seed=1), "canary")
        house.may_answer.clear()
        version = await house.trained(seed=2)
        reaching = asyncio.create_task(house.reach(version, "canary"))
        await until(lambda: any(f"/{version}/" in one["task_id"] for one in house.assigned()))

        # when another becomes the primary meanwhile
        operator = {"agent_id": AGENT, "who": "operator:ada", "at": NOON, "reason": "sure of it"}
        house.store.update(lambda _: DecisionDraft.model_validate(operator | {"move": Promote(version="v1.0.1")}))
        await until(lambda: house.orchestrator.parts.promoters[AGENT].adapters.primary == "v1.0.1")
        house.may_answer.set()
        await reaching

        # then its experiment, beside that one, takes over nothing
        replayed = house.adapters.versions[version].replayed
        assert replayed is not None and replayed.against == "v1.0.0"
        assert house.adapters.experiment is not None
        assert plan_of(house.adapters.experiment).replayed is None


async def test_a_candidate_is_asked_in_the_form_that_users_asked_for(tmp_path: Path) -> None:
    form = AnswerFormat(type="json_schema", json_schema={"type": "object"})
    async with learning_house(tmp_path, {"v1.0.0": 0.8, "v1.0.1": 0.75}, **QUICK) as house:
        house.asked = {"format": form}
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        await house.reach(await house.trained(), "canary")
        asked = [one for one in house.assigned() if one["task_id"].startswith("replay/")]

    assert asked
    assert all(AnswerFormat.model_validate(one["format"]) == form for one in asked)


async def test_limits_for_life_are_measured_beside_v1_0_0_on_the_same_prompts(tmp_path: Path) -> None:
    quality = {"v1.0.0": 0.4, "v1.0.1": 0.8, "v1.0.2": 0.8}
    async with learning_house(tmp_path, quality, **QUICK | {"probation_units": 0}) as house:
        first = await house.trained(seed=1)
        await house.reach(first, "canary", "stable")
        await house.traffic(stop_when=lambda: house.adapters.primary == first)
        so_far = house.submitted
        await house.traffic(stop_when=lambda: house.submitted >= so_far + 60)

        second = await house.trained(seed=2, parent=first)
        await house.reach(second, "canary")

        base = {line.task_id for line in house.logged() if f"{second}-" in line.task_id and "/v1.0.0/" in line.task_id}
        assert len(base) >= 60
        assert house.adapters.experiment is not None
        limits = plan_of(house.adapters.experiment).limits
        assert limits is not None
        assert limits.since_base.score == pytest.approx(0.4, abs=0.05)
        assert limits.since_base.length == pytest.approx(1.0)


async def test_what_is_worse_only_because_the_scorer_is_gone_is_held_up_and_not_refused(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.8, "v1.0.1": 0.8}, **QUICK) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        house.scores_validations = False
        version = await house.trained()
        promoter = house.orchestrator.parts.promoters[AGENT]

        async def is_held_up() -> bool:
            await house.report()
            return bool(promoter.held_up)

        await until(is_held_up)

        assert "the primary does no better now" in promoter.held_up[0].reason
        assert house.state(version) == "trained"


@pytest.mark.parametrize("spoiled", ["missing", "changed", "a link"])
async def test_what_was_trained_and_can_t_be_registered_is_on_record_with_its_reason(
    tmp_path: Path, spoiled: str
) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, **QUICK) as house:

        def spoil(folder: Path) -> None:
            folder.chmod(0o755)
            if spoiled == "changed":
                (folder / "adapter_config.json").chmod(0o644)
                (folder / "adapter_config.json").write_text("{}")
            else:
                folder.rename(tmp_path / "elsewhere")
            if spoiled == "a link":
                folder.symlink_to(tmp_path / "elsewhere")

        version = await house.trained(before_it_is_told=spoil)
        await house.reach(version, "rejected")

        (why,) = [d.reason for d, _ in house.store.ledger.read() if d.move.kind == "reject"]
        training = house.orchestrator.parts.promoters[AGENT].training
        await until(lambda: training.ended_runs, "the run has ended too")
        run = training.ended_runs[0].view
        assert (run.state, run.reason, run.adapter_version) == ("refused", why, version)
        assert "registered" in why
        assert house.adapters.versions[version].folder is None


async def test_hostile_adapters_are_refused_while_users_are_answered(tmp_path: Path) -> None:
    expressions = {"rank_pattern": {r"(([a-z_]+)+[.]?)+!": 4}, "alpha_pattern": {r"(.*)*x": 1.0}}
    hostile = [
        spoiled_config(expressions),
        many_tensors(30_000),
        unsound(3e38, "f4", 3),
        Hostile("a link", after=version_link),
        Hostile("a pipe", after=pipe("adapter_model.safetensors")),
        Hostile("a terabyte", after=with_sparse_entry),
    ]
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, **QUICK) as house:
        for number, one in enumerate(hostile, 1):
            version = f"v1.0.{number}"
            one.write(tmp_path / "adapters", AGENT, version)
            began = monotonic()
            await house.told_of(version)
            await asyncio.gather(
                house.reach(version, "rejected"),
                house.traffic(stop_when=lambda until=house.submitted + 20: house.submitted >= until),
            )
            assert monotonic() - began < 30.0, one

        reasons = [d.reason for d, _ in house.store.ledger.read() if d.move.kind == "reject"]
        assert len(reasons) == len(hostile)
        assert max(map(len, reasons)) <= 1000
        assert {adapter.version for event in house.events for adapter in event.adapters} == set()


async def test_training_is_asked_for_when_enough_has_come_in_and_only_once(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=30) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 60)
        await until(lambda: bool(house.bus.deliveries_published("training")))
        await house.traffic(stop_when=lambda: house.submitted >= 120)

        (delivery,) = house.bus.deliveries_published("training")

        request = TrainRequest.decode(delivery.body)
        assert (request.agent_id, request.parent_version, request.since) == (AGENT, "v1.0.0", 0)


async def test_what_a_training_by_hand_read_counts_as_read_once_its_version_has_passed_the_gate(
    tmp_path: Path,
) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.2": 0.5}) as house:
        training = house.orchestrator.parts.promoters[AGENT].training
        await house.traffic(stop_when=lambda: house.submitted >= 10)
        await until(lambda: training.groups >= 8)
        end = house.orchestrator.ledger.positions()["agent_interactions"]
        data = DataWindow(ranges=(DataRange(log="agent_interactions", start=0, end=end, sha256="0" * 64),))

        # when the gate rejects what an operator trained on it, then the next training has what this one had
        house.refuses = {"v1.0.1": "too large"}
        await house.reach(await house.trained(data=data), "rejected")
        await house.orchestrator.parts.promoters[AGENT].turn()
        assert training.groups >= 8

        # and when it does not, then only what came in since
        await house.reach(await house.trained(data=data, seed=2), "validated", "canary")
        await until(lambda: training.groups == 0)


async def test_no_live_test_begins_before_a_replica_has_told_which_model_it_runs(tmp_path: Path) -> None:
    # given a candidate that was validated before the orchestrator started
    adapters = tmp_path / "adapters"
    decided(RegistryStore(adapters), registration(published(adapters), adapters), Validate(version="v1.0.1"))

    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **QUICK) as house:
        await house.orchestrator.parts.promoters[AGENT].turn()
        assert house.state("v1.0.1") == "validated"

        await house.reach("v1.0.1", "canary")


async def test_no_training_is_asked_for_while_what_came_of_the_last_one_is_being_registered(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, train_after_groups=10) as house:
        await house.traffic(stop_when=lambda: bool(house.bus.deliveries_published("training")))
        await house.traffic(stop_when=lambda: house.submitted >= 60)
        request = TrainRequest.decode(house.bus.deliveries_published("training")[0].body)
        version = published(tmp_path / "adapters", AGENT, seed=1).name

        with lock_folder(tmp_path / "adapters"):
            await house.told_of(version, request_id=request.request_id)
            await settled(0.5)
        await house.reach(version, "validated", "canary")

        assert len(house.bus.deliveries_published("training")) == 1


async def test_a_request_to_train_that_was_pending_at_a_kill_is_sent_again_under_its_id(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=10) as house:
        await house.traffic(stop_when=lambda: bool(house.bus.deliveries_published("training")))
        first = TrainRequest.decode(house.bus.deliveries_published("training")[0].body)

    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=10) as house:
        await until(lambda: bool(house.bus.deliveries_published("training")))

        assert TrainRequest.decode(house.bus.deliveries_published("training")[0].body).request_id == first.request_id


async def test_groups_that_were_counted_before_a_restart_are_not_counted_anew(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=50) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 40)

    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=50) as house:
        house.submitted = 40
        for number in range(40, 60):
            await house.submit(Task(task_id=f"task-{number + 1}", input="x"))

        await until(lambda: bool(house.bus.deliveries_published("training")))


async def test_what_a_refused_training_could_not_use_is_read_by_the_next(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5}, train_after_groups=20) as house:
        await house.traffic(stop_when=lambda: bool(house.bus.deliveries_published("training")))
        first = TrainRequest.decode(house.bus.deliveries_published("training")[0].body)
        await house.refused(first.request_id, "only 3 useful groups, 8 are needed")
        await house.traffic(stop_when=lambda: len(house.bus.deliveries_published("training")) == 2)
        second = TrainRequest.decode(house.bus.deliveries_published("training")[1].body)
        await house.refused(second.request_id, "the mean importance weight is 9", mean_weight=9.0)
        await house.traffic(stop_when=lambda: len(house.bus.deliveries_published("training")) == 3)
        third = TrainRequest.decode(house.bus.deliveries_published("training")[2].body)

        assert (first.since, second.since) == (0, 0)
        assert third.since > 0


async def test_a_candidate_that_proved_nothing_gives_its_data_back_to_the_next_training(tmp_path: Path) -> None:
    settings = QUICK | {"train_after_groups": 20, "experiment_max_units": 15, "golden_from_traffic": False}
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **settings) as house:
        await house.traffic(stop_when=lambda: bool(house.bus.deliveries_published("training")))
        first = TrainRequest.decode(house.bus.deliveries_published("training")[0].body)
        version = await house.trained(request_id=first.request_id)
        await house.reach(version, "canary")

        await house.traffic(stop_when=lambda: house.state(version) == "inconclusive")
        await house.traffic(stop_when=lambda: len(house.bus.deliveries_published("training")) == 2)

        second = TrainRequest.decode(house.bus.deliveries_published("training")[1].body)
        assert (first.since, second.since) == (0, 0)


async def test_a_stable_primary_that_gets_worse_is_demoted_by_its_watch_though_a_canary_runs(tmp_path: Path) -> None:
    quality = {"v1.0.0": 0.5, "v1.0.1": 0.9, "v1.0.2": 0.9}
    settings = QUICK | {"watch_share": 0.2, "golden_from_traffic": False}
    async with learning_house(tmp_path, quality, **settings) as house:
        version = await house.trained()
        await house.reach(version, "canary")
        await house.traffic(stop_when=lambda: house.adapters.watch is not None)
        later = await house.trained(seed=2)
        await house.reach(later, "canary")

        house.quality |= {version: 0.1, later: 0.1}
        await house.traffic(stop_when=lambda: house.adapters.primary == "v1.0.0")

        (outcome,) = [one for one in house.adapters.versions[version].outcomes if one.kind == "watch"]
        assert (house.state(version), outcome.verdict) == ("rolled_back", "rolled_back")
        watched = [line for line in house.logged() if line.arm.experiment_id == outcome.experiment_id]
        assert {line.adapter_version for line in watched} == {version, "v1.0.0"}
        assert house.state(later) in ("aborted", "rolled_back")


async def test_a_watch_goes_on_over_a_restart_where_it_was(tmp_path: Path) -> None:
    quality = {"v1.0.0": 0.5, "v1.0.1": 0.9}
    async with learning_house(tmp_path, quality, **QUICK | {"watch_share": 0.3}) as house:
        version = await house.trained()
        await house.reach(version, "canary")
        await house.traffic(stop_when=lambda: house.adapters.watch is not None)
        arms = house.orchestrator.parts.promoters[AGENT].arms
        await house.traffic(stop_when=lambda: arms.watch is not None and arms.watch.evidence.units >= 20)
        assert arms.watch is not None
        before = arms.watch.decision

    async with learning_house(tmp_path, quality, **QUICK | {"watch_share": 0.3}) as house:
        watch = house.orchestrator.parts.promoters[AGENT].arms.watch
        assert watch is not None
        assert watch.decision == before


async def test_old_versions_are_archived_and_their_folders_go_once_they_have_drained(tmp_path: Path) -> None:
    settings = QUICK | {"keep_adapters": 1, "golden_from_traffic": False}
    async with learning_house(tmp_path, {"v1.0.0": 0.9, "v1.0.1": 0.0, "v1.0.2": 0.0}, **settings) as house:
        for seed in (1, 2):
            version = await house.trained(seed=seed)
            await house.reach(version, "canary")
            await house.traffic(stop_when=lambda v=version: house.state(v) in ("rolled_back", "archived"))

        await house.reach("v1.0.1", "archived")
        folder = tmp_path / "adapters" / AGENT / "v1.0.1"

        async def is_gone() -> bool:
            await house.report()
            return not folder.exists()

        await until(is_gone)
        assert (tmp_path / "adapters" / AGENT / "v1.0.2").exists()


async def test_a_scorer_that_drifts_under_its_old_name_aborts_the_experiment(tmp_path: Path) -> None:
    settings = QUICK | {"anchor_every_s": 0.3, "experiment_min_units_per_arm": 5000}
    async with learning_house(tmp_path, {"v1.0.0": 0.6, "v1.0.1": 0.6}, **settings) as house:
        house.noise = 0.0
        await house.traffic(stop_when=lambda: house.submitted >= 20)
        version = await house.trained()
        await house.reach(version, "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 60)
        assert house.state(version) == "canary"

        house.quality = {"v1.0.0": 0.4, "v1.0.1": 0.4}

        await house.reach(version, "aborted")
        (why,) = [d.reason for d, _ in house.store.ledger.read() if d.move.kind == "conclude"]
        assert "the scorer drifted: the same 16 answers score -0.200 on average" in why


async def test_while_the_scorer_has_drifted_no_training_is_asked_for(tmp_path: Path) -> None:
    def shown() -> float | None:
        return REGISTRY.get_sample_value("ratchet_judge_distrusted", {"agent": AGENT})

    async with learning_house(tmp_path, {"v1.0.0": 0.6}, anchor_every_s=0.2, train_after_groups=400) as house:
        house.noise = 0.0
        await house.traffic(stop_when=lambda: house.submitted >= 20)
        anchors = tmp_path / "adapters" / AGENT / "anchors.jsonl"
        await until(lambda: anchors.exists() and all(len(line["scores"]) == 8 for line in read(anchors)))
        house.quality = {"v1.0.0": 0.3}
        await until(lambda: house.adapters.distrusted is not None)
        house.noise = 0.2

        await house.traffic(stop_when=lambda: house.submitted >= 450)
        await until(lambda: house.orchestrator.parts.promoters[AGENT].training.groups >= 400)
        assert house.bus.deliveries_published("training") == []
        assert shown() == 1.0

        # when the scorer is back, it goes on by itself
        house.noise, house.quality = 0.0, {"v1.0.0": 0.6}
        await until(lambda: bool(house.bus.deliveries_published("training")))
        assert house.adapters.distrusted is None
        kinds = [decision.move.kind for decision, _ in house.store.ledger.read()]
        assert kinds == ["distrust", "trust"]


def read(anchors: Path) -> list[dict[str, list[float]]]:
    return [json.loads(line) for line in anchors.read_text().splitlines()]


async def test_the_running_experiment_is_on_the_metrics_and_gone_after_it(tmp_path: Path) -> None:
    def shown(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(name, {"agent": AGENT, **labels})

    async with learning_house(tmp_path, {"v1.0.0": 0.4, "v1.0.1": 0.8}, **QUICK) as house:
        promotions = shown("ratchet_decisions_total", move="promote") or 0.0
        version = await house.trained()
        await house.reach(version, "canary")
        await until(lambda: shown("ratchet_experiment_share") == 0.05)

        await house.traffic(stop_when=lambda: (shown("ratchet_experiment_units", arm="control") or 0) > 20)
        assert shown("ratchet_experiment_e_value", test="gain") is not None

        await house.traffic(stop_when=lambda: house.adapters.primary == version)
        await until(lambda: shown("ratchet_experiment_share") is None)
        assert shown("ratchet_decisions_total", move="promote") == promotions + 1


async def test_the_way_of_a_new_primary_to_its_first_answer_is_measured_also_by_hand(tmp_path: Path) -> None:
    def measured() -> float | None:
        return REGISTRY.get_sample_value("ratchet_swap_seconds", {"agent": AGENT})

    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **QUICK) as house:
        version = await house.trained()
        await house.reach(version, "canary")
        before = measured()
        operator = {"agent_id": AGENT, "who": "operator:ada", "at": datetime.now(UTC), "reason": "sure of it"}
        house.store.update(lambda _: DecisionDraft.model_validate(operator | {"move": Promote(version=version)}))

        await house.traffic(stop_when=lambda: measured() != before)

        seconds = measured()
        assert seconds is not None and 0 < seconds < 10


async def test_an_older_registry_that_was_read_late_does_not_set_the_arms_back(tmp_path: Path) -> None:
    async with learning_house(tmp_path, {"v1.0.0": 0.5, "v1.0.1": 0.5}, **QUICK) as house:
        promoter = house.orchestrator.parts.promoters[AGENT]
        before = house.store.read()
        version = await house.trained()
        await house.reach(version, "canary")
        await until(lambda: promoter.arms.experiment is not None)
        running = promoter.arms.experiment

        promoter._follow(before, {})

        assert promoter.arms.experiment is running
        assert promoter.arms.adapters.candidate == version
