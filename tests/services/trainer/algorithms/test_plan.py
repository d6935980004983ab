"""The plan of steps: every sample once an epoch, nothing left over, the same gradient whatever is left out."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.trainer.algorithms.plan import Batching, Plan, Size, TrainingTargets, plan_steps


@st.composite
def data(draw: st.DrawFn) -> tuple[list[list[int]], list[Size], list[bool]]:
    """Ragged groups, the lengths of each sample, and whether it has an advantage."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=20))
    numbers = iter(range(sum(sizes)))
    groups = [[next(numbers) for _ in range(size)] for size in sizes]
    tokens = st.tuples(st.integers(1, 9), st.integers(1, 30))
    lengths = draw(st.lists(tokens, min_size=sum(sizes), max_size=sum(sizes)))
    live = draw(st.lists(st.booleans(), min_size=sum(sizes), max_size=sum(sizes)))
    return groups, lengths, live


HOW = st.builds(
    Batching,
    epochs=st.integers(1, 3),
    batch=st.integers(1, 40),
    tokens=st.integers(1, 300),
    seed=st.integers(0, 9),
    processes=st.integers(1, 4),
)


def targets(groups: Sequence[Sequence[int]], live: Sequence[bool]) -> TrainingTargets:
    return TrainingTargets(tuple(map(tuple, groups)), (1.0,) * len(live), tuple(live))


def used(plan: Plan) -> Counter[int]:
    return Counter(number for micro_batch in plan.micro_batches for number in micro_batch.samples)


@given(data(), HOW)
def test_every_live_sample_is_used_once_an_epoch_and_no_other(
    given_data: tuple[list[list[int]], list[Size], list[bool]], how: Batching
) -> None:
    groups, lengths, live = given_data

    plan = plan_steps(targets(groups, live), lengths, how)

    assert used(plan) == Counter({number: how.epochs for number, is_live in enumerate(live) if is_live})


@given(data(), HOW)
def test_steps_count_every_sample_and_token_live_or_not(
    given_data: tuple[list[list[int]], list[Size], list[bool]], how: Batching
) -> None:
    groups, lengths, live = given_data

    plan = plan_steps(targets(groups, live), lengths, how)
    firsts = [step[0] for step in plan.steps]

    assert sum(first.step_samples for first in firsts) == how.epochs * len(lengths)
    assert sum(first.step_tokens for first in firsts) == how.epochs * sum(completion for _, completion in lengths)


@given(data(), HOW, st.randoms(use_true_random=False))
def test_the_rows_of_a_rollout_are_in_one_step_which_counts_it_once_with_its_sampled_tokens(
    given_data: tuple[list[list[int]], list[Size], list[bool]], how: Batching, rng: random.Random
) -> None:
    groups, lengths, live = given_data
    rows = iter(range(10 * len(live)))
    rollouts = [tuple(next(rows) for _ in range(rng.randint(1, 3))) for _ in live]
    sizes = [lengths[number] for number, rollout in enumerate(rollouts) for _ in rollout]
    sampled = [rng.randint(1, completion) for _, completion in sizes]

    plan = plan_steps(targets(groups, live), sizes, how, rollouts, sampled)

    rollout_of = {row: number for number, rollout in enumerate(rollouts) for row in rollout}
    for step in plan.steps:
        found = [row for one in step for row in one.samples]
        assert sorted(found) == sorted(row for number in {rollout_of[row] for row in found} for row in rollouts[number])
    assert used(plan) == Counter({row: how.epochs for row, number in rollout_of.items() if live[number]})
    firsts = [step[0] for step in plan.steps]
    assert sum(first.step_samples for first in firsts) == how.epochs * len(live)
    assert sum(first.step_tokens for first in firsts) == how.epochs * sum(sampled)


@given(data(), HOW)
def test_micro_batches_keep_to_memory_and_processes_in_step(
    given_data: tuple[list[list[int]], list[Size], list[bool]], how: Batching
) -> None:
    groups, lengths, live = given_data

    plan = plan_steps(targets(groups, live), lengths, how)

    for step in plan.steps:
        assert step and len(step) % how.processes == 0
        for start in range(0, len(step), how.processes):
            together = step[start : start + how.processes]
            assert len({one.rows for one in together}) == 1
            assert all(len(one.samples) <= one.rows for one in together)
            assert all(one.padded <= how.tokens or one.rows == 1 for one in together)


@given(data(), HOW)
def test_what_a_micro_batch_pads_is_counted(
    given_data: tuple[list[list[int]], list[Size], list[bool]], how: Batching
) -> None:
    groups, lengths, live = given_data

    for one in plan_steps(targets(groups, live), lengths, how).micro_batches:
        prompts, completions = (
            zip(*(lengths[number] for number in one.samples), strict=True) if one.samples else ((), ())
        )
        assert one.tokens == sum(prompts) + sum(completions)
        assert one.padded == (one.rows * (max(prompts) + max(completions)) if one.samples else 0)


def test_no_step_is_much_smaller_than_the_others() -> None:
    groups = [[number] for number in range(130)]

    plan = plan_steps(targets(groups, [True] * 130), [(1, 5)] * 130, Batching(1, batch=128, tokens=384, seed=0))

    assert [micro_batch.step_samples for micro_batch in plan.micro_batches] == [130] * 3


def test_groups_stay_together_beside_others_of_their_length() -> None:
    groups = [[4 * number + one for one in range(4)] for number in range(4)]
    lengths = [(2, length) for group in (30, 3, 30, 3) for length in [group] * 4]

    plan = plan_steps(targets(groups, [True] * 16), lengths, Batching(epochs=1, batch=16, tokens=260, seed=0))

    found = [{number // 4 for number in micro_batch.samples} for micro_batch in plan.micro_batches]
    assert found == [{1, 3}, {0, 2}]


def long_tails(median: int, longest: int, rng: random.Random) -> tuple[list[list[int]], list[Size]]:
    """256 groups of 8 answers, lognormal in length: half of the spread is the task's, half the answer's own."""
    lengths = []
    for _ in range(256):
        prompt, task = rng.randint(50, 300), rng.gauss(0, 0.7)
        spread = (math.exp(task + rng.gauss(0, 0.7)) for _ in range(8))
        lengths += [(prompt, min(longest, max(1, round(median * times)))) for times in spread]
    return [list(range(start, start + 8)) for start in range(0, len(lengths), 8)], lengths


@pytest.mark.parametrize(("median", "longest", "tokens"), [(300, 8_000, 16_384), (60, 1_500, 2_048)])
@pytest.mark.parametrize("batch", [32, 128])
def test_four_fifths_of_what_goes_through_the_model_is_no_padding_with_long_tails(
    median: int, longest: int, tokens: int, batch: int
) -> None:
    groups, lengths = long_tails(median, longest, random.Random(1))
    live = [True] * len(lengths)

    plan = plan_steps(targets(groups, live), lengths, Batching(epochs=1, batch=batch, tokens=tokens, seed=0))

    by_the_longest = len(lengths) // max(1, tokens // max(map(sum, lengths)))
    assert plan.fill > 0.8
    assert len(plan.micro_batches) < 0.5 * by_the_longest


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_plan_and_another_another(seed: int) -> None:
    groups = [[2 * number, 2 * number + 1] for number in range(20)]

    def plan(seed: int) -> Plan:
        return plan_steps(targets(groups, [True] * 40), [(1, 5)] * 40, Batching(2, batch=8, tokens=48, seed=seed))

    assert plan(seed) == plan(seed)
    assert plan(seed) != plan(seed + 1)
