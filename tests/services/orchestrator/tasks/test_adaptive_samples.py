"""Fewer answers are sampled once fewer are proved enough, and the whole group again once that does not hold."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from ratchet.experiments.experiment import Experiment
from schemas.messages.base import Metadata
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION, Arm, Sampling, Work
from schemas.records.decision import RunningExperiment
from schemas.records.evidence import ExperimentPlan
from schemas.records.interaction import Interaction, Latencies
from schemas.records.registry import AgentAdapters, FrozenBy
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.tasks.adaptive_samples import AdaptiveSamples, SamplesPolicy
from services.orchestrator.tasks.admission import AdmissionPolicy, Origin, admit

NOW = datetime(2031, 5, 1, 12, 0, tzinfo=UTC)
LATENCIES = Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=1)
POLICY = AdmissionPolicy(("small",), Sampling(n=8), timedelta(hours=1))


class Fleet:
    """One agent whose answers are right with the chance of their version."""

    def __init__(self, policy: SamplesPolicy, **chances: float) -> None:
        self.arms = Arms("small")
        self.samples = AdaptiveSamples(self.arms, policy, random.Random(2))
        self.chances = {f"v1.0.{name[1:]}": chance for name, chance in chances.items()}
        self.rng = random.Random(1)
        self.sequence = 0

    def promote(self, version: str) -> None:
        self.arms.follow(_adapters(version), None)

    def answer(self, version: str, tasks: int, *, asked: int | None = None) -> None:
        for _ in range(tasks):
            task = Task(task_id=f"t{self.sequence}", input="x", samples=asked)
            arm = Arm(adapter_version=version, sequence=self.sequence)
            work = admit(task, POLICY, arm=arm, now=NOW, origin=Origin(), samples=self.samples.draw())
            self.sequence += 1
            self.samples.observe(work, [self._line(work, index) for index in range(work.sampling.n)])

    def _line(self, work: Work, index: int) -> Interaction:
        right = float(self.rng.random() < self.chances[work.arm.adapter_version])
        return Interaction(
            task_id=work.task_id,
            input=work.input,
            response="abc",
            score=right,
            agent_id="small",
            adapter_version=work.arm.adapter_version,
            timestamp=NOW,
            metadata=Metadata(),
            sample=index,
            group_size=work.sampling.n,
            arm=work.arm,
            sampling=work.sampling,
            completion_ids=(1, 2, 3),
            latencies=LATENCIES,
        )


def _adapters(primary: str, **fields: object) -> AgentAdapters:
    base = AgentAdapters()
    versions = dict.fromkeys((BASE_VERSION, "v1.0.1", "v1.0.2"), base.versions[BASE_VERSION])
    return base.model_copy(update={"primary": primary, "versions": versions, **fields})


def proved(policy: SamplesPolicy | None = None) -> Fleet:
    """v1.0.1, whose single answers are nearly always right, has taken the place of v1.0.0, whose are not."""
    fleet = Fleet(policy or SamplesPolicy(8, least=1, margin=0.05), v0=0.3, v1=0.99, v2=0.3)
    fleet.promote("v1.0.1")
    fleet.answer("v1.0.1", 400)
    return fleet


def test_fewer_answers_are_sampled_once_fewer_are_proved_as_good() -> None:
    fleet = proved()

    assert fleet.samples.count() == 1
    figures = fleet.samples.figures()
    assert (figures.now, figures.usual, figures.least) == (1, 8, 1)
    assert figures.saved_samples > 0
    assert figures.saved_tokens == 3 * figures.saved_samples


def test_a_group_is_never_smaller_than_the_user_allows_or_a_training_needs() -> None:
    assert proved(SamplesPolicy(8, least=3, margin=0.05)).samples.count() == 3
    assert proved(SamplesPolicy(8, least=1, margin=0.05, trains=True)).samples.count() == 4
    assert SamplesPolicy(2, least=1, trains=True).floor == 2


def test_it_is_off_unless_it_is_asked_for() -> None:
    fleet = proved(SamplesPolicy(8))
    assert fleet.samples.count() == 8
    assert fleet.samples.figures().saved_samples == 0


def test_nothing_is_lowered_where_fewer_answers_are_not_as_good() -> None:
    fleet = Fleet(SamplesPolicy(8, least=1, margin=0.01), v0=0.3)
    fleet.answer(BASE_VERSION, 1500)

    assert fleet.samples.count() == 8


def test_a_new_primary_is_sampled_in_whole_groups_until_it_is_proved_itself() -> None:
    fleet = proved()

    fleet.promote("v1.0.2")
    at_once = fleet.samples.count()
    fleet.answer("v1.0.2", 400)

    assert (at_once, fleet.samples.count()) == (8, 7)


def test_fewer_that_have_come_to_lose_more_bring_the_whole_group_back() -> None:
    fleet = proved()
    fleet.chances["v1.0.1"] = 0.2
    lowered = fleet.samples.count()

    fleet.answer("v1.0.1", 300)

    assert (lowered, fleet.samples.count()) == (1, 8)


def test_what_a_drifting_scorer_says_proves_nothing() -> None:
    fleet = proved()
    why = FrozenBy(who="orchestrator", since=NOW, reason="the scorer drifted")
    fleet.arms.follow(_adapters("v1.0.1", distrusted=why), None)
    fleet.chances["v1.0.1"] = 0.0

    while_it_drifts = fleet.samples.count()
    fleet.answer("v1.0.1", 300)
    fleet.arms.follow(_adapters("v1.0.1"), None)

    assert (while_it_drifts, fleet.samples.count()) == (8, 1)


def test_under_a_new_measure_what_was_proved_before_it_proves_nothing() -> None:
    fleet = proved()
    fleet.arms.follow(_adapters("v1.0.1", anchored=7), None)
    at_once = fleet.samples.count()

    fleet.answer("v1.0.1", 40)

    assert (at_once, fleet.samples.count()) == (8, 8)


@pytest.mark.parametrize(
    ("kind", "metric", "samples"), [("canary", "single", 8), ("watch", "single", 1), ("watch", "served", 8)]
)
def test_an_experiment_gets_the_whole_groups_it_needs(kind: str, metric: str, samples: int) -> None:
    fleet = proved()
    plan = ExperimentPlan.model_validate({"experiment_id": "e", "kind": kind, "metric": metric})
    running = RunningExperiment.model_construct(experiment_id="e", kind=kind)
    name = "watch" if kind == "watch" else "experiment"
    experiment = Experiment(plan)

    fleet.arms.follow(
        _adapters("v1.0.1", **{name: running}), *([None, experiment] if kind == "watch" else [experiment])
    )

    assert fleet.samples.count() == samples


def test_a_task_that_asks_for_its_samples_gets_them_and_proves_nothing() -> None:
    fleet = proved()
    before = fleet.samples.figures()
    fleet.chances["v1.0.1"] = 0.0

    fleet.answer("v1.0.1", 300, asked=3)

    assert fleet.samples.figures() == before


def test_a_restart_knows_what_was_proved_and_another_group_size_begins_anew() -> None:
    fleet = proved()
    again = AdaptiveSamples(fleet.arms, SamplesPolicy(8, least=1, margin=0.05))
    smaller = AdaptiveSamples(fleet.arms, SamplesPolicy(4, least=1, margin=0.05))

    again.take_up(fleet.samples.note())
    smaller.take_up(fleet.samples.note())

    assert again.figures() == fleet.samples.figures()
    assert smaller.count() == 4


def test_what_was_lowered_is_logged_with_the_sampling() -> None:
    def sampled(samples: int | None, asked: int | None = None) -> Sampling:
        task = Task(task_id="t", input="x", samples=asked)
        return admit(task, POLICY, arm=Arm(sequence=0), now=NOW, origin=Origin(), samples=samples).sampling

    assert (sampled(2).n, sampled(2).lowered_from) == (2, 8)
    assert (sampled(8).n, sampled(8).lowered_from) == (8, None)
    assert (sampled(None).n, sampled(None).lowered_from) == (8, None)
    assert (sampled(2, asked=5).n, sampled(2, asked=5).lowered_from) == (5, None)
