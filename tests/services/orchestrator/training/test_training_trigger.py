"""When a training is asked for, and whether what it read is done with."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import JsonValue

from ratchet.adapters.taught_logs import is_kept, words_key
from ratchet.bus.topology import TRAINING, fleet_topology
from ratchet.logs.names import INTERACTIONS
from schemas.messages.reward import ScorerIdentity
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.records.interaction import Interaction
from services.orchestrator.ledger.ledger import Ledger
from services.orchestrator.training.scheduler import TrainingScheduler
from services.orchestrator.training.trigger import TrainingPolicy, TrainingState, due, shows, teaches, uses_up
from tests.memory_bus import MemoryBus
from tests.services.trainer.making_logs import group, line

BY_COUNT = TrainingPolicy(after_groups=30, every_s=0)
BY_TIME = TrainingPolicy(after_groups=0, every_s=3600)
BOTH = TrainingPolicy(after_groups=30, every_s=3600)
NEVER = TrainingPolicy(after_groups=0, every_s=0)


@pytest.mark.parametrize(
    ("policy", "groups", "seconds_since", "why"),
    [
        (BY_COUNT, 29, 1e6, None),
        (BY_COUNT, 30, 0, "30 new useful groups"),
        (BY_TIME, 1, 3599, None),
        (BY_TIME, 1, 3600, "3600 s since the last run, 1 new useful groups"),
        (BY_TIME, 0, 1e6, None),
        (BOTH, 30, 0, "30 new useful groups"),
        (BOTH, 2, 3600, "3600 s since the last run, 2 new useful groups"),
        (NEVER, 1000, 1e6, None),
    ],
)
def test_a_training_is_due_by_count_or_by_time_if_there_is_anything_new(
    policy: TrainingPolicy, groups: int, seconds_since: float, why: str | None
) -> None:
    assert due(TrainingState(groups=groups), policy, seconds_since) == why


def test_nothing_is_due_while_a_request_is_open() -> None:
    assert due(TrainingState(groups=1000, pending="run"), BOTH, 1e9) is None


@pytest.mark.parametrize(
    ("status", "metrics", "used"),
    [
        ("trained", {"steps": 128}, True),
        ("refused", {"gap": 0.4, "effective_share": 0.1}, True),
        ("refused", {}, False),
        ("failed", {}, False),
    ],
)
def test_a_window_is_used_up_once_it_was_held_against_the_parent(
    status: str, metrics: dict[str, JsonValue], used: bool
) -> None:
    outcome = {"request_id": "run", "agent_id": "small", "status": status, "reason": "why", "metrics": metrics}
    version = {"adapter_version": "v1.0.1", "adapter_sha256": "a" * 64} if status == "trained" else {}

    assert uses_up(AdapterTrained.model_validate(outcome | version)) is used


@pytest.mark.parametrize(
    ("scores", "programs", "counts", "in_group"),
    [
        ((0.1, 0.9), (None, None), True, True),
        ((0.5, 0.5, None), (None, None, None), False, False),
        ((0.1, 0.9), ("shell", "aider"), False, True),
        ((0.1, 0.1, 0.9, 0.9), ("shell", "shell", "aider", "aider"), False, True),
        ((0.1, 0.2, 0.9), ("shell", "shell", "aider"), True, True),
    ],
    ids=["unequal", "level", "one of each program", "level within each", "unequal within one"],
)
def test_a_group_that_differs_between_programs_alone_brings_no_training_unless_those_are_compared(
    scores: tuple[float | None, ...], programs: tuple[str | None, ...], counts: bool, in_group: bool
) -> None:
    lines = [
        Interaction.decode(line("t", at, score=score, program=program, group_size=len(scores)))
        for at, (score, program) in enumerate(zip(scores, programs, strict=True))
    ]

    assert teaches(lines) is counts
    assert teaches(lines, "program") is counts
    assert teaches(lines, "group") is in_group


@pytest.mark.parametrize(
    ("scores", "reference", "counts"),
    [((0.0, 0.0), 1.0, True), ((1.0, 1.0), 1.0, False), ((0.0, 0.0), 0.0, False), ((0.0, 0.0), None, False)],
    ids=["answers fall short of it", "all are as good", "it is not worth anything", "nobody said"],
)
def test_a_group_without_spread_counts_where_its_reference_teaches(
    scores: tuple[float, ...], reference: float | None, counts: bool
) -> None:
    lines = [
        Interaction.decode(line("t", at, score=score, reference_score=reference)) for at, score in enumerate(scores)
    ]

    assert shows(lines) is counts


async def test_what_groups_are_counted_by_is_what_the_trainer_is_asked_for(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    bus = MemoryBus(fleet_topology(("small",)))
    await bus.start()
    policy = TrainingPolicy(after_groups=1, every_s=0, baseline="group")
    training = TrainingScheduler("small", bus, ledger, policy, lambda: datetime(2026, 3, 1, tzinfo=UTC), lambda: 50.0)
    training.start()
    training.note_closed(
        [
            Interaction.decode(line("t", 0, score=0.1, program="shell", group_size=2)),
            Interaction.decode(line("t", 1, score=0.9, program="aider", group_size=2)),
        ]
    )
    await training.ask_if_due(allowed=True, primary="v1.0.0")
    (asked,) = bus.deliveries_published(TRAINING)
    await bus.stop(1.0)
    await ledger.close()

    assert TrainRequest.decode(asked.body).hyperparameters == {"baseline": "group"}


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"finish_reason": "length"}, False),
        ({"completion_ids": None}, False),
        ({"sample_status": "lost"}, False),
        ({"score": None, "score_status": "unscorable"}, True),
        ({"score": None, "score_status": "timeout"}, False),
    ],
    ids=["usable", "cut", "no tokens", "lost", "can't be scored", "no score"],
)
def test_a_group_counts_where_a_training_would_take_it(changed: dict[str, Any], counts: bool) -> None:
    """The group has two answers, one of which is as given."""
    better, other = line("t", 0, score=1.0), line("t", 1, **({"score": 0.5} | changed))

    assert teaches([Interaction.decode(better), Interaction.decode(other)]) is counts


OTHER = ScorerIdentity(id="judge", revision="2")


async def test_groups_are_counted_since_the_last_training_whoever_asked_for_it(tmp_path: Path) -> None:
    """Groups of the newest scorer count, as in a training, also over a restart."""
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    training = counting(ledger)

    async def close(number: int, **changed: Any) -> None:
        lines = [Interaction.decode(one) for one in group(f"t-{number}", (0.1, 0.9), **changed)]
        await ledger.settle(lines)
        training.note_closed(lines)

    for number in range(5):
        await close(number)
    half = ledger.positions()[INTERACTIONS]
    await close(5, scorer=OTHER)
    by_another = training.groups
    await close(6)
    back = training.groups
    training.note_learned("v1.0.1", 0, half)
    after, since = training.groups, counting(ledger).groups
    training.note_learned(
        "v1.0.2", half + 1, half + 2
    )  # it left out what came before: the next one reads on where it did
    training.note_learned("v1.0.1", 0, half)
    training.note_learned("v1.0.3", 0, 10 * half)  # of a larger log than this one
    again = training.groups
    training.give_back("v1.0.1")
    note = ledger.index.note("training/small")
    await ledger.close()

    assert (by_another, back) == (1, 6)
    assert (after, since, again) == (1, 1, 1)
    assert note is not None and msgspec.json.decode(note)["since"] == 0


async def test_a_prompt_that_no_training_sees_brings_none(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, segment_bytes=1 << 20)
    await ledger.open()
    policy = TrainingPolicy(after_groups=0, every_s=0, replay_share=0.5)
    training = counting(ledger, policy)
    prompts = [f"sort {number}" for number in range(20)]
    for number, prompt in enumerate(prompts):
        training.note_closed([Interaction.decode(one) for one in group(f"t-{number}", (0.1, 0.9), input=prompt)])
    await ledger.close()

    assert training.groups == sum(not is_kept(words_key(prompt), 0.5) for prompt in prompts) < len(prompts)


def counting(ledger: Ledger, policy: TrainingPolicy = NEVER) -> TrainingScheduler:
    bus = MemoryBus(fleet_topology(("small",)))
    training = TrainingScheduler("small", bus, ledger, policy, lambda: datetime(2026, 3, 1, tzinfo=UTC), lambda: 50.0)
    training.start()
    return training
