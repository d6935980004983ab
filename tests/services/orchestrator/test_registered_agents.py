"""Tasks of an evaluation agent, while an experiment takes traffic and trainings read the log: neither sees them."""

from __future__ import annotations

from pathlib import Path

from ratchet.bus.topology import MANAGER, work_queue
from ratchet.logs.groups import teaches_nothing
from schemas import Task
from tests.services.orchestrator.learning_house import AGENT, LearningHouse, learning_house
from tests.services.orchestrator.test_learning import QUICK
from tests.services.trainer.data.test_journal_scan import selected
from tests.waiting import until

COUNT = 200


async def test_no_task_of_an_evaluation_agent_is_in_a_training_or_in_an_experiment(tmp_path: Path) -> None:
    given = QUICK | {"manager_url": "http://127.0.0.1:8780", "experiment_min_units_per_arm": 10_000}
    async with learning_house(tmp_path, {"v1.0.0": 0.4, "v1.0.1": 0.5}, **given) as house:
        await house.bus.consume(work_queue(AGENT, registered=True), house._answer, prefetch=16)
        # given a candidate that takes a share of the traffic
        version = await house.trained()
        await house.reach(version, "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        counted = in_experiment(house)
        assert counted > 0

        # when an evaluation agent answers many tasks
        for number in range(COUNT):
            task = Task(task_id=f"e/{number}", input=f"x {number}", registered_agent="bot", kept_apart=True)
            await house.submit_as(MANAGER, task)
        await until(lambda: len(house.bus.deliveries_published("results")) >= house.submitted + COUNT)

        # then no experiment counts one of them, and all have the primary's answer
        lines = [line for line in house.logged() if line.registered_agent == "bot"]
        assert len(lines) == 2 * COUNT
        assert {(line.arm.experiment_id, line.adapter_version) for line in lines} == {(None, "v1.0.0")}
        assert all(teaches_nothing(line) for line in lines)
        assert in_experiment(house) == counted

        # and a training leaves all of them out, by that reason
        counts = selected(tmp_path).counts
        assert (counts["lines"], counts["lines.other_tenant"]) == (2 * COUNT + 2 * house.submitted, 2 * COUNT)


def in_experiment(house: LearningHouse) -> int:
    """Tasks that were given to an arm of the experiment, by the log."""
    return sum(1 for one in house.assigned() if one["arm"].get("experiment_id"))
