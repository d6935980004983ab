"""What each move does, what forbids it, and that no order of moves ever breaks the registry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.adapters.contest import MOVES as TABLE
from ratchet.adapters.contest import allowed_moves
from ratchet.adapters.decisions import Mark, chain_decision
from ratchet.adapters.registry_moves import apply
from ratchet.adapters.retention import to_archive
from ratchet.service.errors import NotAllowed
from schemas.records.decision import (
    Archive,
    Conclude,
    Decision,
    DecisionDraft,
    Distrust,
    Freeze,
    Move,
    Promote,
    RejectVersion,
    RemoveFolder,
    RollBack,
    RunningExperiment,
    Settle,
    StartExperiment,
    Trust,
    Unfreeze,
    Validate,
)
from schemas.records.evidence import Change
from schemas.records.registry import AgentAdapters, EntryState, Registry
from tests.quick import rounds
from tests.ratchet.adapters.making_adapters import NOON
from tests.ratchet.adapters.making_decisions import draft, experiment, register, to_canary, to_primary, to_probation

ANN = "operator:ann"


def decision(move: Move, who: str = "orchestrator", at: datetime = NOON, sequence: int = 1) -> Decision:
    return chain_decision(Mark(sequence - 1), draft(move, who, at))[0]


def fold(decisions: Iterable[Decision], registry: Registry | None = None) -> Registry:
    """The registry after all of them, in order."""
    return reduce(apply, decisions, registry or Registry())


def after(*moves: Move, start: AgentAdapters | None = None, who: str = "orchestrator") -> AgentAdapters:
    registry = Registry(agents={"small": start} if start else {})
    return fold([decision(move, who, sequence=n) for n, move in enumerate(moves, 1)], registry).agent("small")


def states(agent: AgentAdapters) -> dict[str, str]:
    return {version: str(entry.state) for version, entry in agent.versions.items()}


def refused(agent: AgentAdapters, move: Move, who: str = "orchestrator", at: datetime = NOON) -> str:
    with pytest.raises(NotAllowed) as error:
        apply(Registry(agents={"small": agent}), decision(move, who, at))
    return str(error.value)


def test_every_state_has_a_sentence_and_its_moves() -> None:
    assert set(TABLE) == {None, *EntryState}
    assert all(state.sentence.endswith(".") for state in EntryState)
    final = [state for state, row in TABLE.items() if not any(row)]
    assert final == [EntryState.ARCHIVED]


def test_a_refused_version_stays_refused_and_a_refused_program_may_be_another_by_now() -> None:
    assert allowed_moves("adapters", EntryState.REJECTED) == {EntryState.ARCHIVED}
    assert allowed_moves("programs", EntryState.REJECTED) == {EntryState.ASKED, EntryState.STABLE}


def test_the_whole_life_of_a_better_adapter() -> None:
    # given a canary that proves better, and a better one after it
    agent = after(*to_primary("v1.0.1"), *to_primary("v1.0.2", "v1.0.1"))
    # then the newest is the primary, the one before it is one step away, the base is kept, and another may be tried
    assert states(agent) == {"v1.0.0": "superseded", "v1.0.1": "superseded", "v1.0.2": "stable"}
    assert (agent.primary, agent.previous, agent.candidate) == ("v1.0.2", "v1.0.1", None)
    assert agent.experiment is None
    outcomes = [(outcome.kind, outcome.verdict) for outcome in agent.versions["v1.0.1"].outcomes]
    assert outcomes == [("canary", "promoted")]


def test_a_harmful_candidate_is_rolled_back_and_cools_down() -> None:
    # when a canary is rolled back with a cool-down of an hour
    later = NOON + timedelta(hours=1)
    agent = after(*to_canary("v1.0.1"), RollBack(version="v1.0.1", cool_down_until=later))
    assert states(agent) == {"v1.0.0": "stable", "v1.0.1": "rolled_back"}
    assert (agent.primary, agent.candidate, agent.experiment) == ("v1.0.0", None, None)
    # then the next one waits, unless an operator starts it
    agent = after(register("v1.0.2"), Validate(version="v1.0.2"), start=agent)
    start = StartExperiment(experiment=experiment("v1.0.2"))
    assert "cooling down until" in refused(agent, start, at=NOON + timedelta(minutes=59))
    assert after(start, start=agent, who=ANN).candidate == "v1.0.2"
    registry = apply(Registry(agents={"small": agent}), decision(start, at=later))
    assert registry.agent("small").candidate == "v1.0.2"


def test_a_primary_is_rolled_back_step_by_step() -> None:
    # given three versions promoted one after the other
    agent = after(*to_primary("v1.0.1"), *to_primary("v1.0.2", "v1.0.1"))
    # when the newest is rolled back, then the one before it
    agent = after(RollBack(version="v1.0.2"), start=agent)
    assert (agent.primary, agent.previous, agent.experiment) == ("v1.0.1", "v1.0.0", None)
    agent = after(RollBack(version="v1.0.1"), start=agent)
    assert (agent.primary, agent.previous) == ("v1.0.0", None)
    # then there is nothing left to go back to
    assert "nothing before v1.0.0" in refused(agent, RollBack(version="v1.0.0"), ANN)


def watched(control: str = "v1.0.0") -> list[Move]:
    """A primary with its watch."""
    return [*to_primary("v1.0.1"), StartExperiment(experiment=experiment("v1.0.1", control, "watch"))]


def test_a_watch_runs_beside_a_canary_and_ends_with_the_measure_of_its_primary() -> None:
    agent = after(*watched(), *to_canary("v1.0.2", "v1.0.1"))
    assert [one.experiment_id for one in agent.running] == ["canary-v1.0.2", "watch-v1.0.1"]

    since = Change(score=0.1, length=1.2)
    agent = after(Conclude(experiment_id="watch-v1.0.1", verdict="unharmed", since_base=since), start=agent)

    assert (agent.watch, agent.candidate) == (None, "v1.0.2")
    assert (agent.primary, agent.versions["v1.0.1"].since_base) == ("v1.0.1", since)
    assert [one.verdict for one in agent.versions["v1.0.1"].outcomes] == ["promoted", "unharmed"]


def test_a_watch_ends_with_its_primary() -> None:
    promoted = after(*watched(), *to_primary("v1.0.2", "v1.0.1"))
    assert (promoted.watch, promoted.versions["v1.0.1"].outcomes[-1].verdict) == (None, "replaced")

    demoted = after(RollBack(version="v1.0.1"), start=after(*watched(), *to_canary("v1.0.2", "v1.0.1")))
    assert (demoted.primary, demoted.watch, demoted.candidate) == ("v1.0.0", None, None)
    assert demoted.versions["v1.0.1"].outcomes[-1].verdict == "rolled_back"
    assert demoted.versions["v1.0.2"].outcomes[-1].verdict == "aborted"


@pytest.mark.parametrize(
    ("moves", "move", "words"),
    [
        (to_canary("v1.0.1"), StartExperiment(experiment=experiment("v1.0.1", kind="watch")), "is not the primary"),
        (watched(), StartExperiment(experiment=experiment("v1.0.1", kind="watch")), "still watching"),
        (
            [*to_primary("v1.0.1"), register("v1.0.2")],
            StartExperiment(experiment=experiment("v1.0.1", "v1.0.2", "watch")),
            "must hold back v1.0.0",
        ),
        (to_canary("v1.0.1"), Conclude(experiment_id="canary-v1.0.1", verdict="unharmed"), "only a watch"),
    ],
)
def test_what_a_watch_may_not_be_is_refused_with_a_reason(moves: list[Move], move: Move, words: str) -> None:
    assert words in refused(after(*moves), move)


def test_a_roll_back_may_name_where_to_go() -> None:
    agent = after(*to_primary("v1.0.1"), *to_primary("v1.0.2", "v1.0.1"))
    agent = after(RollBack(version="v1.0.2", to="v1.0.0"), start=agent, who=ANN)
    assert states(agent) == {"v1.0.0": "stable", "v1.0.1": "superseded", "v1.0.2": "rolled_back"}


def test_a_primary_rolled_back_under_a_running_canary_aborts_it() -> None:
    agent = after(*to_primary("v1.0.1"), Settle(version="v1.0.1"), *to_canary("v1.0.2", "v1.0.1"))
    agent = after(RollBack(version="v1.0.1"), start=agent)
    assert states(agent) == {"v1.0.0": "stable", "v1.0.1": "rolled_back", "v1.0.2": "aborted"}
    assert (agent.candidate, agent.experiment) == (None, None)
    assert agent.versions["v1.0.2"].outcomes[0].verdict == "aborted"


@pytest.mark.parametrize("verdict", ["inconclusive", "aborted"])
def test_a_canary_without_a_winner_may_try_again(verdict: str) -> None:
    conclude = Conclude(experiment_id="canary-v1.0.1", verdict=verdict)  # type: ignore[arg-type]
    agent = after(*to_canary("v1.0.1"), conclude)
    assert (agent.versions["v1.0.1"].state, agent.primary, agent.experiment) == (verdict, "v1.0.0", None)
    again = StartExperiment(experiment=experiment("v1.0.1", experiment_id="second"))
    assert after(again, start=agent).candidate == "v1.0.1"


def test_a_probation_of_an_older_ledger_is_replayed_and_ends_beside_the_watch() -> None:
    # given a ledger in which a probation was aborted, begun again and settled
    again = StartExperiment(experiment=experiment("v1.0.1", kind="probation", experiment_id="second"))
    aborted = Conclude(experiment_id="probation-v1.0.1", verdict="aborted")
    old = after(*to_probation("v1.0.1"), aborted, again, Settle(version="v1.0.1"))
    entry = old.versions["v1.0.1"]
    assert (entry.state, old.experiment, entry.decision) == ("stable", None, 7)
    assert [one.verdict for one in entry.outcomes] == ["promoted", "aborted", "settled"]

    # and one that still ran: the watch begins beside it, and it ends as a watch does
    watch = StartExperiment(experiment=experiment("v1.0.1", kind="watch"))
    unharmed = Conclude(experiment_id="probation-v1.0.1", verdict="unharmed")
    running = after(*to_probation("v1.0.1"), watch)
    assert [one.kind for one in running.running] == ["probation", "watch"]
    assert [one.kind for one in after(unharmed, start=running).running] == ["watch"]


def test_a_registry_of_an_older_version_is_what_its_ledger_adds_up_to() -> None:
    registry = fold([decision(move, sequence=n) for n, move in enumerate(to_probation("v1.0.1"), 1)])
    written = registry.encode().replace(b'"state": "stable"', b'"state": "probation"')

    assert b'"state": "probation"' in written
    assert Registry.decode(written) == registry


def test_frozen_nothing_goes_forward_but_back_always() -> None:
    # given an agent frozen during a canary
    agent = after(Freeze(), start=after(*to_canary("v1.0.1")), who=ANN)
    promotion = Promote(version="v1.0.1", experiment_id="canary-v1.0.1")
    # then nobody promotes, and the sentence says who froze it, why, and how to go on
    for who in ("orchestrator", ANN):
        assert "frozen by operator:ann since 2026-01-05 12:00 UTC (for a test)" in refused(agent, promotion, who)
    assert "frozen already" in refused(agent, Freeze(), ANN)
    # but the candidate is still rolled back, and after that no other starts
    agent = after(RollBack(version="v1.0.1"), register("v1.0.2"), Validate(version="v1.0.2"), start=agent)
    assert "adapters unfreeze" in refused(agent, StartExperiment(experiment=experiment("v1.0.2")))
    assert after(Unfreeze(), StartExperiment(experiment=experiment("v1.0.2")), start=agent).candidate == "v1.0.2"


REFUSALS: list[tuple[list[Move], Move, str, str]] = [
    ([register("v1.0.1")], register("v1.0.1"), "trainer", "publish the new weights as a new version"),
    ([], register("v1.0.2", parent="v1.0.1"), "trainer", "there is no version v1.0.1"),
    ([], Validate(version="v1.0.1"), "orchestrator", "`ratchet adapters list` shows"),
    ([register("v1.0.1")], StartExperiment(experiment=experiment("v1.0.1")), "orchestrator", "can't become canary"),
    (to_canary("v1.0.1"), RejectVersion(version="v1.0.1"), "orchestrator", "is canary, so it can't become rejected"),
    (
        [*to_canary("v1.0.1"), register("v1.0.2"), Validate(version="v1.0.2")],
        StartExperiment(experiment=experiment("v1.0.2")),
        "orchestrator",
        "one at a time",
    ),
    (
        [*to_primary("v1.0.1"), Settle(version="v1.0.1"), register("v1.0.2"), Validate(version="v1.0.2")],
        StartExperiment(experiment=experiment("v1.0.2", control="v1.0.0")),
        "orchestrator",
        "is not the primary, which is v1.0.1",
    ),
    (to_canary("v1.0.1"), Promote(version="v1.0.1"), "orchestrator", "only by the experiment that proves it"),
    (to_canary("v1.0.1"), Promote(version="v1.0.1", experiment_id="old"), "orchestrator", "old is not running"),
    (
        [*to_canary("v1.0.1"), register("v1.0.2"), Validate(version="v1.0.2")],
        Promote(version="v1.0.2"),
        ANN,
        "v1.0.1 is in an experiment: roll it back",
    ),
    (to_primary("v1.0.1"), Promote(version="v1.0.1"), ANN, "is the primary already"),
    (to_canary("v1.0.1"), Conclude(experiment_id="old", verdict="aborted"), "orchestrator", "old is not running"),
    ([register("v1.0.1")], RollBack(version="v1.0.1"), ANN, "serves nothing to roll back"),
    (to_canary("v1.0.1"), Settle(version="v1.0.1"), "orchestrator", "only a primary becomes stable"),
    ([], Unfreeze(), ANN, "nothing to lift"),
    ([], Archive(version="v1.0.0"), "orchestrator", "the base model"),
    (
        [*to_primary("v1.0.1"), *to_primary("v1.0.2", "v1.0.1")],
        Archive(version="v1.0.1"),
        "orchestrator",
        "v1.0.1 is in use",
    ),
    ([register("v1.0.1")], Archive(version="v1.0.1"), "orchestrator", "can't become archived"),
    ([register("v1.0.1")], RemoveFolder(version="v1.0.1"), "orchestrator", "only an archived version's folder"),
]


@pytest.mark.parametrize(("before", "move", "who", "sentence"), REFUSALS)
def test_what_is_refused_and_why(before: Sequence[Move], move: Move, who: str, sentence: str) -> None:
    assert sentence in refused(after(*before), move, who)


def test_an_archived_version_keeps_its_record_without_a_folder_and_never_serves_again() -> None:
    gone = [
        register("v1.0.1"),
        RejectVersion(version="v1.0.1"),
        Archive(version="v1.0.1"),
        RemoveFolder(version="v1.0.1"),
    ]
    agent = after(*gone)
    assert agent.versions["v1.0.1"].folder is None
    assert agent.versions["v1.0.1"].sha256 == "a" * 64
    assert "the folder of v1.0.1 was removed" in refused(agent, Promote(version="v1.0.1"), ANN)
    assert "only an archived version's folder is removed, once" in refused(agent, gone[-1])


def test_agents_learn_independently() -> None:
    small = [decision(move, sequence=n) for n, move in enumerate(to_canary("v1.0.1"), 1)]
    other = chain_decision(Mark(3), draft(Freeze(), agent_id="other"))[0]
    registry = fold([*small, other])
    assert registry.agent("small").candidate == "v1.0.1"
    assert (registry.agent("other").frozen is not None, registry.agent("small").frozen) == (True, None)
    assert registry.revision == 4


@pytest.mark.parametrize(("keep", "archived"), [(0, ["v1.0.1", "v1.0.9"]), (1, ["v1.0.1", "v1.0.9"]), (2, ["v1.0.1"])])
def test_retention_keeps_the_newest_that_were_tried_and_what_is_in_use(keep: int, archived: list[str]) -> None:
    # given an old failure, another, the primary and an untested version
    agent = after(*to_canary("v1.0.1"), RollBack(version="v1.0.1"))
    agent = after(
        register("v1.0.9"), RejectVersion(version="v1.0.9"), *to_primary("v1.0.10"), register("v1.0.11"), start=agent
    )
    # then only versions that are out of use go, oldest first, by number and not by spelling
    assert to_archive(agent, keep) == archived


def test_each_research_agent_has_the_newest_of_its_own_and_no_other_move_than_to_the_archive() -> None:
    own = [register(f"v1.0.{n}").model_copy(update={"research_agent": "lab" if n % 2 else "den"}) for n in range(1, 6)]
    agent = after(*own, register("v1.0.6"), RejectVersion(version="v1.0.6"))
    assert states(agent)["v1.0.1"] == "research"
    assert agent.versions["v1.0.1"].research_agent == "lab"
    assert sorted(to_archive(agent, 1)) == ["v1.0.1", "v1.0.2", "v1.0.3"]
    assert "it can't become validated" in refused(agent, Validate(version="v1.0.1"))
    assert "it can't become canary" in refused(agent, StartExperiment(experiment=experiment("v1.0.1")))


VERSIONS = st.sampled_from(["v1.0.0", "v1.0.1", "v1.0.2", "v1.0.3"])
EXPERIMENTS = st.builds(
    RunningExperiment,
    experiment_id=st.sampled_from(["e1", "e2"]),
    kind=st.sampled_from(["canary", "watch"]),
    treatment=VERSIONS,
    control=VERSIONS,
    share=st.sampled_from([0.05, 0.5]),
    started_at=st.just(NOON),
)
MOVES = st.one_of(
    st.builds(register, VERSIONS, VERSIONS),
    st.builds(Validate, version=VERSIONS),
    st.builds(RejectVersion, version=VERSIONS),
    st.builds(StartExperiment, experiment=EXPERIMENTS),
    st.builds(Promote, version=VERSIONS, experiment_id=st.sampled_from([None, "e1"])),
    st.builds(Settle, version=VERSIONS),
    st.builds(RollBack, version=VERSIONS, to=st.none() | VERSIONS),
    st.builds(Conclude, experiment_id=st.just("e1"), verdict=st.sampled_from(["inconclusive", "aborted"])),
    st.builds(Archive, version=VERSIONS),
    st.builds(RemoveFolder, version=VERSIONS),
    st.builds(Freeze),
    st.builds(Distrust),
    st.builds(Trust, anchor_anew=st.booleans()),
    st.builds(Unfreeze),
)
HEAD_START = [move for version in ("v1.0.1", "v1.0.2") for move in (register(version), Validate(version=version))]


@settings(max_examples=rounds(300))
@given(moves=st.lists(st.tuples(MOVES, st.sampled_from(["orchestrator", ANN])), max_size=25))
def test_no_order_of_moves_breaks_the_registry(moves: list[tuple[Move, str]]) -> None:
    registry = fold([decision(move, sequence=n) for n, move in enumerate(HEAD_START, 1)])
    for move, who in moves:
        try:
            registry = apply(registry, decision(move, who, sequence=registry.revision + 1))
        except NotAllowed:
            continue
        agent = registry.agent("small")
        primaries = [entry for entry in agent.versions.values() if entry.state is EntryState.STABLE]
        assert [entry.version for entry in primaries] == [agent.primary]
        assert agent.candidate is None or agent.candidate not in (agent.primary, agent.previous)
        assert all(agent.versions[version].can_serve for version in agent.in_traffic)
        assert (agent.candidate is not None) == bool(agent.experiment and agent.experiment.kind == "canary")
        assert Registry.decode(registry.encode()) == registry


def test_moves_are_read_back_as_what_they_were() -> None:
    probation = Promote(version="v1.0.1", probation=experiment("v1.0.1", kind="probation"))
    for move in (probation, register("v1.0.1"), Unfreeze(), RemoveFolder(version="v1.0.1"), *to_canary("v1.0.2")):
        assert DecisionDraft.decode(draft(move).encode()).move == move
