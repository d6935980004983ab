"""What each move does to an agent's programs, what forbids it, and that ledgers without any stay as they were."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.adapters.decisions import DecisionLedger, Mark, program_of, version_of
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.registry_moves import apply
from ratchet.experiments.lifetime import candidates_tried
from ratchet.experiments.records import experiments
from ratchet.files import hash_chain
from ratchet.service.errors import NotAllowed, RegistryError
from schemas.records.decision import (
    Conclude,
    Freeze,
    Move,
    ProgramArms,
    ProgramRevision,
    Promote,
    PromoteProgram,
    RejectProgram,
    RollBack,
    RollBackProgram,
    RunningExperiment,
    SettleProgram,
    StartExperiment,
    TryProgram,
    Validate,
)
from schemas.records.evidence import Change
from schemas.records.registry import AgentAdapters, EntryState, Registry
from tests.quick import rounds
from tests.ratchet.adapters.making_adapters import NOON
from tests.ratchet.adapters.making_decisions import draft, experiment, register, to_canary, to_primary
from tests.ratchet.adapters.test_registry_moves import ANN, decision, refused


def of_programs(
    treatment: str = "new", control: str = "old", kind: str = "canary", version: str = "v1.0.0"
) -> RunningExperiment:
    arms = ProgramArms(
        treatment=ProgramRevision(name=treatment, revision="a" * 64),
        control=ProgramRevision(name=control, revision="b" * 64),
    )
    one = experiment(version, version, kind, f"{kind}-{treatment}")
    return one.model_copy(update={"programs": arms})


def starts(treatment: str = "new", control: str = "old", kind: str = "canary") -> StartExperiment:
    return StartExperiment(experiment=of_programs(treatment, control, kind))


def after(*moves: Move, start: AgentAdapters | None = None) -> AgentAdapters:
    """An operator's moves are made by one."""
    registry = Registry(agents={"small": start} if start else {})
    for number, move in enumerate(moves, 1):
        hand = isinstance(move, TryProgram) or (isinstance(move, PromoteProgram) and move.experiment_id is None)
        registry = apply(registry, decision(move, ANN if hand else "orchestrator", sequence=number))
    return registry.agent("small")


def states(agent: AgentAdapters) -> dict[str, str]:
    return {name: str(entry.state) for name, entry in agent.programs.entries.items()}


CHOSEN: list[Move] = [PromoteProgram(program="old")]
TRIED: list[Move] = [*CHOSEN, TryProgram(program="new"), starts()]
PROMOTED: list[Move] = [
    *TRIED,
    PromoteProgram(program="new", experiment_id="canary-new", since_first=Change(length=1.5)),
]
WATCHED: list[Move] = [*PROMOTED, starts(kind="watch")]


def test_the_whole_life_of_a_better_program() -> None:
    # given one that answers, and another that is asked for, tried and proved better
    assert after().programs.primary is None
    tried = after(*TRIED)
    assert (tried.programs.primary, tried.programs.candidate, tried.candidate) == ("old", "new", None)
    assert tried.experiment is not None and tried.experiment.arms == ("new", "old")
    assert {name: entry.revision for name, entry in tried.programs.entries.items()} == {
        "old": "b" * 64,
        "new": "a" * 64,
    }

    promoted = after(*PROMOTED)
    watched = after(*WATCHED)
    unharmed = after(Conclude(experiment_id="watch-new", verdict="unharmed"), start=watched)

    # then it answers, and is watched; the versions of the adapters have not moved
    assert states(promoted) == {"old": "superseded", "new": "stable"}
    assert (promoted.programs.primary, promoted.programs.previous, promoted.experiment) == ("new", "old", None)
    assert (watched.experiment, watched.watch) == (None, of_programs(kind="watch"))
    new = unharmed.programs.entries["new"]
    assert [(one.kind, one.verdict) for one in new.outcomes] == [("canary", "promoted"), ("watch", "unharmed")]
    assert (unharmed.watch, new.since_first, new.replaced) == (None, Change(length=1.5), "old")
    assert unharmed.versions == after().versions


def test_a_harmful_program_leaves_traffic_and_the_one_before_it_answers_again() -> None:
    later = NOON + timedelta(hours=1)
    candidate = after(*TRIED, RollBackProgram(program="new", cool_down_until=later))
    assert states(candidate) == {"old": "stable", "new": "rolled_back"}
    assert (candidate.experiment, candidate.cool_down_until) == (None, later)

    primary = after(*WATCHED, RollBackProgram(program="new"))
    assert states(primary) == {"old": "stable", "new": "rolled_back"}
    assert (primary.programs.primary, primary.programs.previous, primary.watch) == ("old", None, None)
    assert primary.programs.entries["new"].outcomes[-1].verdict == "rolled_back"

    # and where there was none before it, the samples are dealt to all again
    none = after(RollBackProgram(program="old"), start=primary)
    assert (none.programs.primary, states(none)["old"]) == (None, "rolled_back")


def test_what_was_asked_for_is_called_off_or_refused_before_any_traffic() -> None:
    asked = after(*CHOSEN, TryProgram(program="new"))
    assert asked.programs.asked == "new"
    assert states(after(RejectProgram(program="new"), start=asked))["new"] == "rejected"
    called_off = after(RollBackProgram(program="new"), start=asked)
    assert (states(called_off)["new"], called_off.programs.asked) == ("aborted", None)
    # and may be asked for again
    assert after(TryProgram(program="new"), start=called_off).programs.asked == "new"


@pytest.mark.parametrize("verdict", ["inconclusive", "aborted"])
def test_an_experiment_without_a_winner_leaves_the_present_program(verdict: str) -> None:
    ends = Conclude.model_validate({"experiment_id": "canary-new", "verdict": verdict})
    agent = after(*TRIED, ends)
    assert states(agent) == {"old": "stable", "new": verdict}
    assert (agent.programs.candidate, agent.experiment) == (None, None)
    assert candidates_tried([*agent.versions.values(), *agent.programs.entries.values()]) == 1


def test_a_probation_of_an_older_ledger_is_replayed() -> None:
    promoted = PromoteProgram(program="new", experiment_id="canary-new", probation=of_programs(kind="probation"))
    aborted = Conclude(experiment_id="probation-new", verdict="aborted")

    running = after(*CHOSEN, SettleProgram(program="old"), *TRIED[1:], promoted)
    settled = after(aborted, starts(kind="probation"), SettleProgram(program="new"), start=running)

    assert (states(running)["new"], running.experiment) == ("stable", of_programs(kind="probation"))
    assert (states(settled)["new"], settled.experiment) == ("stable", None)
    outcomes = settled.programs.entries["new"].outcomes
    assert [one.verdict for one in outcomes] == ["promoted", "aborted", "settled"]


def test_with_the_primary_version_goes_the_experiment_that_both_arms_of_are_answered_by_it() -> None:
    base = after(*to_primary("v1.0.1"), *CHOSEN, TryProgram(program="new"))
    tried = after(StartExperiment(experiment=of_programs(version="v1.0.1")), start=base)

    agent = after(RollBack(version="v1.0.1"), start=tried)

    assert (agent.primary, agent.experiment, agent.programs.candidate) == ("v1.0.0", None, None)
    assert (states(agent)["new"], agent.programs.entries["new"].outcomes[-1].verdict) == ("aborted", "aborted")
    assert [one.kind for one in agent.versions["v1.0.1"].outcomes] == ["canary"]


def test_another_primary_version_ends_the_watch_over_a_program() -> None:
    agent = after(*WATCHED, register("v1.0.1"), Validate(version="v1.0.1"))

    promoted = apply(Registry(agents={"small": agent}), decision(Promote(version="v1.0.1"), ANN)).agent("small")
    rolled_back = after(
        StartExperiment(experiment=of_programs(kind="watch", version="v1.0.1")),
        RollBack(version="v1.0.1"),
        start=promoted,
    )

    assert (promoted.primary, promoted.watch, states(promoted)["new"]) == ("v1.0.1", None, "stable")
    assert (rolled_back.primary, rolled_back.watch, states(rolled_back)["new"]) == ("v1.0.0", None, "stable")
    verdicts = [one.verdict for one in rolled_back.programs.entries["new"].outcomes]
    assert verdicts == ["promoted", "replaced", "aborted"]


@pytest.mark.parametrize(
    ("moves", "move", "who", "words"),
    [
        ([], TryProgram(program="new"), ANN, "no program answers by default yet"),
        (CHOSEN, TryProgram(program="new"), "orchestrator", "only where an operator asks for it"),
        (CHOSEN, TryProgram(program="old"), ANN, "is the primary already"),
        (TRIED, TryProgram(program="third"), ANN, "new is tried already"),
        ([*CHOSEN, Freeze()], TryProgram(program="new"), ANN, "frozen by"),
        (CHOSEN, starts(), ANN, "was never tried or chosen"),
        (
            [*CHOSEN, TryProgram(program="new")],
            starts("new", "third"),
            "orchestrator",
            "control third is not the primary",
        ),
        (CHOSEN, starts("old", "new", "watch"), "orchestrator", "must hold back None"),
        (WATCHED, starts(kind="watch"), "orchestrator", "one watch at a time"),
        ([*CHOSEN, TryProgram(program="new")], starts("old", "old"), "orchestrator", "with itself"),
        (CHOSEN, PromoteProgram(program="new"), "orchestrator", "only by the experiment that proves it"),
        (CHOSEN, PromoteProgram(program="old"), ANN, "is the primary already"),
        (TRIED, PromoteProgram(program="third"), ANN, "new is in an experiment"),
        (TRIED, PromoteProgram(program="new", experiment_id="canary-x"), "orchestrator", "is not running"),
        ([*TRIED, Freeze()], PromoteProgram(program="new", experiment_id="canary-new"), "orchestrator", "frozen by"),
        (CHOSEN, SettleProgram(program="new"), "orchestrator", "is not the primary, which is old"),
        (CHOSEN, RollBackProgram(program="new"), ANN, "serves nothing to roll back"),
        (TRIED, RejectProgram(program="new"), "orchestrator", "is canary, so it can't become rejected"),
        (TRIED, Conclude(experiment_id="canary-new", verdict="unharmed"), "orchestrator", "only a watch"),
        (TRIED, Promote(version="v1.0.1"), ANN, "program new is in an experiment: it has to end"),
        (
            [*CHOSEN, *to_canary("v1.0.1")],
            PromoteProgram(program="new"),
            ANN,
            "v1.0.1 is in an experiment",
        ),
        ([*TRIED, register("v1.0.1"), Validate(version="v1.0.1")], to_canary("v1.0.1")[2], "orchestrator", "one at a"),
        ([*CHOSEN, TryProgram(program="new"), *to_canary("v1.0.1")], starts(), "orchestrator", "one at a time"),
    ],
)
def test_what_the_rules_forbid_is_said(moves: list[Move], move: Move, who: str, words: str) -> None:
    assert words in refused(after(*moves), move, who)


def test_a_roll_back_is_never_refused() -> None:
    frozen = after(*TRIED, Freeze())
    assert states(after(RollBackProgram(program="new"), start=frozen))["new"] == "rolled_back"
    both = after(RollBackProgram(program="old"), start=frozen)
    assert (both.programs.primary, states(both)) == (None, {"old": "rolled_back", "new": "aborted"})


MOVES: list[Move] = [
    *(TryProgram(program=name) for name in "abc"),
    *(PromoteProgram(program=name) for name in "abc"),
    *(RollBackProgram(program=name) for name in "abc"),
    *(SettleProgram(program=name) for name in "abc"),
    *(RejectProgram(program=name) for name in "abc"),
    *(starts(one, other, kind) for one in "abc" for other in "abc" for kind in ("canary", "watch")),
    *(PromoteProgram(program=name, experiment_id=f"canary-{name}") for name in "abc"),
    *(Conclude(experiment_id=f"{kind}-{name}", verdict="aborted") for name in "abc" for kind in ("canary", "watch")),
]
OF_VERSIONS: list[Move] = [
    *to_primary("v1.0.1"),
    Promote(version="v1.0.1"),
    RollBack(version="v1.0.1"),
    StartExperiment(experiment=of_programs("a", "b", version="v1.0.1")),
    StartExperiment(experiment=experiment("v1.0.1", kind="watch")),
]

HEAD_START: list[Move] = [
    PromoteProgram(program="a"),
    PromoteProgram(program="b"),
    *to_primary("v1.0.1")[:2],
    starts("b", "a", "watch"),
]


@settings(max_examples=rounds(150))
@given(st.lists(st.sampled_from(MOVES) | st.sampled_from(OF_VERSIONS), max_size=30))
def test_no_order_of_moves_breaks_what_always_holds(moves: list[Move]) -> None:
    registry = Registry()
    for number, move in enumerate([*HEAD_START, *moves], 1):
        try:
            registry = apply(registry, decision(move, ANN, sequence=number))
        except NotAllowed:
            continue
        agent = registry.agent("small")
        if (primary := agent.programs.primary) is not None:
            back = apply(registry, decision(RollBackProgram(program=primary), ANN, sequence=number + 1)).agent("small")
            assert back.programs.primary == agent.programs.previous
        serving = [name for name, entry in agent.programs.entries.items() if entry.state is EntryState.STABLE]
        assert serving == ([agent.programs.primary] if agent.programs.primary else [])
        for running, treated in ((agent.experiment, "candidate"), (agent.watch, "primary")):
            if running is not None:
                contest, control = agent.contest(running.contest), "primary" if treated == "candidate" else "previous"
                assert running.arms == (getattr(contest, treated), getattr(contest, control))
                assert running.programs is None or running.treatment == agent.primary
        assert Registry.decode(registry.encode()) == registry


# --- ledgers ---------------------------------------------------------------------------------------------------------


def written(folder: Path, moves: list[Move]) -> RegistryStore:
    store = RegistryStore(folder)
    for move in moves:
        hand = isinstance(move, TryProgram) or (isinstance(move, PromoteProgram) and move.experiment_id is None)
        store.change(store.read().revision, draft(move, ANN if hand else "orchestrator"))
    return store


def test_a_ledger_without_programs_reads_and_writes_as_before(tmp_path: Path) -> None:
    store = written(tmp_path, to_primary("v1.0.1"))

    assert "program" not in store.ledger.path.read_text()
    assert "program" not in store.path.read_text()
    assert store.read() == store.replay()


def test_a_ledger_with_both_kinds_is_replayed_and_tells_its_experiments(tmp_path: Path) -> None:
    store = written(tmp_path, [*to_primary("v1.0.1"), *CHOSEN, TryProgram(program="new")])
    start = StartExperiment(experiment=of_programs(version="v1.0.1"))
    proved = PromoteProgram(program="new", experiment_id="canary-new")
    watch = StartExperiment(experiment=of_programs(kind="watch", version="v1.0.1"))
    for move in (start, proved, watch, RollBackProgram(program="new")):
        store.change(store.read().revision, draft(move))

    found = experiments(line.decision for line in store.ledger.read())

    assert store.read() == store.replay()
    assert [(one.running.arms, one.running.kind, one.outcome) for one in found] == [
        (("v1.0.1", "v1.0.0"), "canary", "promoted"),
        (("new", "old"), "canary", "promoted"),
        (("new", "old"), "watch", "rolled_back"),
    ]
    assert [one.summary().of for one in found] == ["adapters"] + ["programs"] * 2
    about = [line.decision for line in store.ledger.read()][4:]
    assert [program_of(one) for one in about] == ["old", *["new"] * 5]
    assert {version_of(one) for one in about} == {None}


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_a_decision_on_programs_that_was_changed_is_found(tmp_path: Path, line: int) -> None:
    store = written(tmp_path, PROMOTED)
    lines = store.ledger.path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"new"', b'"own"').replace(b'"old"', b'"odd"')
    store.ledger.path.write_bytes(b"".join(lines))

    with pytest.raises(RegistryError, match=f"line {line + 1} .* was changed after it was written"):
        list(DecisionLedger(tmp_path).read())


def test_an_older_reader_stops_at_the_first_move_that_it_does_not_know(tmp_path: Path) -> None:
    # given a line as an older version sees one of these: whole, chained, and of a kind that it has never heard of
    known = DecisionLedger(tmp_path).append(Mark(), draft(register("v1.0.1")))
    fields = draft(TryProgram(program="new"), ANN).model_dump(mode="json") | {"schema_version": "decision.v1"}
    fields["move"]["kind"] = "move_of_a_later_version"
    _, line = hash_chain.chain_line(known.end.link, json.loads(json.dumps(fields)))
    with DecisionLedger(tmp_path).path.open("ab") as file:
        file.write(line + b"\n")

    with pytest.raises(RegistryError, match=r"line 2 .* was written by another version of ratchet"):
        list(DecisionLedger(tmp_path).read())
