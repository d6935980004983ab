"""When an experiment of programs begins, what it waits for, and when it ends because of what runners say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from ratchet.experiments.replay import plan_of
from schemas.records.decision import (
    Conclude,
    Move,
    ProgramArms,
    PromoteProgram,
    RejectProgram,
    RollBackProgram,
    RunningExperiment,
    StartExperiment,
)
from schemas.records.evidence import Change, Verdict
from schemas.records.registry import AgentAdapters
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.promotion.experiment_transitions import (
    canary,
    move_after_verdict,
    next_watch,
    program_canary,
)
from services.orchestrator.promotion.gate import Pauses
from services.orchestrator.promotion.program_trials import (
    RUNNERS_READY_S,
    Declared,
    ProgramTrials,
    difference,
    find_arms,
)
from services.orchestrator.promotion.shadow_gate import GateVerdict
from tests.ratchet.adapters.making_adapters import NOON
from tests.ratchet.adapters.making_decisions import experiment, to_primary
from tests.ratchet.adapters.test_program_moves import CHOSEN, PROMOTED, TRIED, WATCHED, TryProgram, after, of_programs
from tests.ratchet.experiments.test_promotion_rule import evidence
from tests.services.orchestrator.promotion.test_experiment_transitions import POLICY, WHERE
from tests.waiting import settled

ASKED = [*CHOSEN, TryProgram(program="new")]
BOTH = {"old": "b" * 64, "new": "a" * 64}


class Trials:
    """Turn by turn, with the clock and what runners say in hand."""

    def __init__(self, adapters: AgentAdapters, *told: Declared) -> None:
        self.told: Sequence[Declared] = told
        self.now = 0.0
        self.decided: list[tuple[Move, str]] = []
        self.verdict = GateVerdict(True, "as good on 5 golden tasks", {"tasks": 5})
        self.asked: list[ProgramArms] = []
        self.arms = Arms("small")
        self.arms.adapters = adapters
        self._trials = ProgramTrials(
            self.arms,
            POLICY,
            lambda: self.told,
            self._gate,
            self._decide,
            lambda: WHERE,
            lambda: self.now,
            Pauses(lambda: NOON, lambda: self.now),
        )

    async def _gate(self, arms: ProgramArms) -> GateVerdict:
        self.asked.append(arms)
        return self.verdict

    async def _decide(
        self, move: Move, reason: str, *, evidence: object = None, running: RunningExperiment | None = None
    ) -> None:
        self.decided.append((move, reason))

    async def turn(self, *, at: float = 0.0) -> list[tuple[Move, str]]:
        """And a second one, for which the gate has its word."""
        self.now, self.decided = at, []
        await self._trials.end_of_another()
        await self._trials.turn()
        await settled()
        if not self.decided:
            await self._trials.end_of_another()
            await self._trials.turn()
        return self.decided


async def test_it_begins_once_all_runners_have_both_programs_alike() -> None:
    trials = Trials(after(*ASKED))
    assert await trials.turn() == []
    trials.told = [BOTH, {**BOTH, "new": "c" * 64}]
    assert await trials.turn(at=5.0) == []
    trials.told = [BOTH, BOTH]

    ((move, reason),) = await trials.turn(at=RUNNERS_READY_S + 10.0)

    assert isinstance(move, StartExperiment) and move.experiment.programs == of_programs().programs
    assert reason == "an operator asked for it: as good on 5 golden tasks"
    assert trials.asked == [of_programs().programs]


async def test_what_fails_at_the_gate_is_not_tried() -> None:
    trials = Trials(after(*ASKED), BOTH)
    trials.verdict = GateVerdict(False, "it answered 3 of 5 tasks", {})

    assert await trials.turn() == [(RejectProgram(program="new"), "it answered 3 of 5 tasks")]


async def test_the_gates_word_is_about_the_revisions_that_are_compared() -> None:
    trials = Trials(after(*ASKED), BOTH)
    await trials._trials.end_of_another()
    await trials._trials.turn()
    trials.told = [{**BOTH, "new": "c" * 64}]

    ((move, _),) = await trials.turn()

    assert isinstance(move, StartExperiment) and move.experiment.programs is not None
    assert [one.treatment.revision for one in trials.asked] == ["c" * 64]
    assert move.experiment.programs.treatment.revision == "c" * 64


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "no runner tells of its programs"),
        ([{"old": "b" * 64}], "runners have no program new: they have old"),
        ([BOTH, {**BOTH, "old": "c" * 64}], "not all 2 runners have the same program old"),
    ],
)
async def test_what_runners_do_not_have_for_long_is_not_tried(told: list[Declared], words: str) -> None:
    trials = Trials(after(*ASKED), *told)
    assert await trials.turn(at=1.0) == []

    assert await trials.turn(at=1.0 + RUNNERS_READY_S) == [(RejectProgram(program="new"), words)]


async def test_it_waits_for_its_turn() -> None:
    cooling = after(*ASKED).model_copy(update={"cool_down_until": NOON + timedelta(seconds=1)})
    assert await Trials(cooling, BOTH).turn() == []
    assert await Trials(after(*TRIED), BOTH).turn() == []


async def test_what_was_promoted_by_hand_is_watched_beside_the_one_before_it() -> None:
    by_hand = after(*CHOSEN, PromoteProgram(program="new"))

    arms = Trials(by_hand, BOTH)._trials.watchable
    move = next_watch("small", by_hand, POLICY, WHERE, arms)
    assert isinstance(move, StartExperiment)
    assert (move.experiment.kind, move.experiment.arms) == ("watch", ("new", "old"))
    assert plan_of(move.experiment).length_tolerance > POLICY.canary.length_tolerance

    # the first one of all, and one whose predecessor is nowhere any more, have nothing to be watched by
    assert Trials(after(PromoteProgram(program="old")), BOTH)._trials.watchable is None
    assert Trials(by_hand, {"new": "a" * 64})._trials.watchable is None


async def test_a_program_and_the_primary_version_are_watched_in_turns_the_one_that_is_new_first() -> None:
    def next_move(agent: AgentAdapters) -> object:
        return next_watch("small", agent, POLICY, WHERE, of_arms())

    version = StartExperiment(experiment=experiment("v1.0.1", kind="watch"))
    before = after(*to_primary("v1.0.1"), version, *CHOSEN)

    # given a watch over the version when a program is promoted: it ends, and the program is watched
    promoted = after(PromoteProgram(program="new"), start=before)
    ends = next_move(promoted)
    assert ends == Conclude(experiment_id="watch-v1.0.1", verdict="unharmed")
    free = after(ends, start=promoted)
    began = next_move(free)
    assert isinstance(began, StartExperiment) and began.experiment.arms == ("new", "old")

    # then it is the version's turn, and nothing ends that one early
    watched = after(began, Conclude(experiment_id=began.experiment.experiment_id, verdict="unharmed"), start=free)
    turn = next_move(watched)
    assert isinstance(turn, StartExperiment) and turn.experiment.arms[0] == "v1.0.1"
    assert next_move(after(version, start=watched)) is None


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([BOTH, {**BOTH, "new": "c" * 64}], "program new was changed"),
        ([{**BOTH, "old": "c" * 64}], "program old was changed"),
        ([{"old": "b" * 64}], "no longer has the program new"),
    ],
)
async def test_it_ends_without_a_winner_once_a_runner_has_another_program(told: list[Declared], words: str) -> None:
    for adapters in (after(*TRIED), after(*WATCHED)):
        ((move, reason),) = await Trials(adapters, *told).turn()
        assert isinstance(move, Conclude) and move.verdict == "aborted"
        assert words in reason


async def test_runners_that_are_silent_end_nothing() -> None:
    assert await Trials(after(*TRIED)).turn() == []
    assert difference(of_arms(), [BOTH]) is None


def of_arms() -> ProgramArms:
    found = find_arms(("new", "old"), [BOTH])
    assert isinstance(found, ProgramArms)
    return found


def test_a_program_has_limits_of_its_own_of_which_the_present_one_has_used_a_part() -> None:
    adapters = after(*PROMOTED, TryProgram(program="third"))
    arms = of_programs("third", "new").programs
    assert arms is not None

    plan = plan_of(program_canary("small", arms, adapters, POLICY, WHERE).experiment)

    assert plan.limits is not None
    assert (plan.limits.length, plan.limits.latency) == (pytest.approx(3.0 / 1.5), pytest.approx(3.0))
    assert plan.nth == 2
    assert plan.length_tolerance > POLICY.canary.length_tolerance


def test_adapters_and_programs_share_the_errors_of_a_lifetime() -> None:
    adapters = after(*PROMOTED)
    assert plan_of(canary("small", "v1.0.0", adapters, POLICY, WHERE).experiment).nth == 2


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        (Verdict.ROLL_BACK, RollBackProgram),
        (Verdict.ABORT, Conclude),
        (Verdict.INCONCLUSIVE, Conclude),
    ],
)
def test_a_verdict_becomes_a_move(verdict: Verdict, kind: type) -> None:
    running = program_canary("small", of_arms(), after(*ASKED), POLICY, WHERE).experiment
    assert isinstance(move_after_verdict(running, verdict, POLICY, WHERE), kind)


def test_a_promotion_says_what_was_changed() -> None:
    running = program_canary("small", of_arms(), after(*ASKED), POLICY, WHERE).experiment
    measured = evidence().model_copy(update={"change": Change(length=1.4)})

    move = move_after_verdict(running, Verdict.PROMOTE, POLICY, WHERE, measured)

    assert isinstance(move, PromoteProgram)
    assert move.since_first == Change(length=1.4)
