"""The plan of steps: every sample once an epoch, nothing left over, the same gradient whatever is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.algorithms.plan import Batching, Plan, TrainingTargets, plan_steps


@st.composite
def data(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[bool]]:
    """Ragged groups, the length of each sample, and whether it has an advantage."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=20))
    numbers = iter(range(sum(sizes)))
    groups = [[next(numbers) for _ in range(size)] for size in sizes]
    lengths = draw(st.lists(st.integers(1, 30), min_size=sum(sizes), max_size=sum(sizes)))
    live = draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes)))
    return groups, lengths, live


HOW = st.builds(
    Batching,
    epochs=st.integers(1, 3),
    batch=st.integers(1, 40),
    micro_batch=st.integers(1, 16),
    seed=st.integers(0, 9),
    processes=st.integers(1, 4),
)


def targets(groups: Sequence[Sequence[int]], live: Sequence[bool]) -> TrainingTargets:
    return TrainingTargets(tuple(map(tuple, groups)), (1.0,) * len(live), tuple(live))


def used(plan: Plan) -> Counter[int]:
    return Counter(number for micro_batch in plan.micro_batches for number in micro_batch.samples)


@given(data(), HOW)
def test_every_live_sample_is_used_once_an_epoch_and_no_other(
    given_data: tuple[list[list[int]], list[int], list[bool]], how: Batching
) -> None:
    groups, lengths, live = given_data

    plan = plan_steps(targets(groups, live), lengths, how)

    assert used(plan) == Counter({number: how.epochs for number, is_live in enumerate(live) if is_live})


@given(data(), HOW)
def test_steps_count_every_sample_and_token_live_or_not(
    given_data: tuple[list[list[int]], list[int], list[bool]], how: Batching
) -> None:
    groups, lengths, live = given_data

    plan = plan_steps(targets(groups, live), lengths, how)
    firsts = plan.micro_batches[:: plan.per_step]

    assert sum(first.step_samples for first in firsts) == how.epochs * len(lengths)
    assert sum(first.step_tokens for first in firsts) == how.epochs * sum(lengths)


@given(data(), HOW)
def test_micro_batches_keep_to_memory_and_processes_in_step(
    given_data: tuple[list[list[int]], list[int], list[bool]], how: Batching
) -> None:
    groups, lengths, live = given_data

    plan = plan_steps(targets(groups, live), lengths, how)

    assert len(plan.micro_batches) == plan.steps * plan.accumulation * how.processes
    for start in range(0, len(plan.micro_batches), how.processes):
        together = plan.micro_batches[start : start + how.processes]
        assert len({one.rows for one in together}) == 1
        assert all(len(one.samples) <= one.rows <= max(how.micro_batch, 1) for one in together)


def test_no_step_is_much_smaller_than_the_others() -> None:
    groups = [[number] for number in range(130)]

    plan = plan_steps(targets(groups, [True] * 130), [5] * 130, Batching(epochs=1, batch=128, micro_batch=64, seed=0))

    assert [micro_batch.step_samples for micro_batch in plan.micro_batches] == [130] * 3


def test_groups_stay_together_beside_others_of_their_length() -> None:
    groups = [[4 * number + one for one in range(4)] for number in range(4)]
    lengths = [length for group in (30, 2, 28, 3) for length in (group, 1, 1, group)]

    plan = plan_steps(targets(groups, [True] * 16), lengths, Batching(epochs=1, batch=16, micro_batch=8, seed=0))

    found = [{number // 4 for number in micro_batch.samples} for micro_batch in plan.micro_batches]
    assert found == [{1, 3}, {0, 2}]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_plan_and_another_another(seed: int) -> None:
    groups = [[2 * number, 2 * number + 1] for number in range(20)]

    def plan(seed: int) -> Plan:
        return plan_steps(targets(groups, [True] * 40), [5] * 40, Batching(epochs=2, batch=8, micro_batch=8, seed=seed))

    assert plan(seed) == plan(seed)
    assert plan(seed) != plan(seed + 1)
