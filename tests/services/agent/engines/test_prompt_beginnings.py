"""Which beginnings of prompts are kept."""

from __future__ import annotations

from services.agent.engines.row_cache import PromptBeginnings

SYSTEM = [7, 8, 9, 10]


def test_what_a_second_prompt_begins_with_is_shared_in_whole_blocks_and_its_end_is_not() -> None:
    beginnings = PromptBeginnings(block=2)
    first, second, other = [*SYSTEM, 1, 1, 1], [*SYSTEM, 2, 2, 2], [1, 1, *SYSTEM]
    beginnings.note(None, first)
    assert beginnings.shared_tokens(None, first) == 0
    beginnings.note(None, second)
    assert beginnings.shared_tokens(None, first) == beginnings.shared_tokens(None, second) == 4
    beginnings.note(None, other)
    assert beginnings.shared_tokens(None, other) == 0


def test_a_prompt_that_comes_again_is_shared_to_its_last_whole_block_with_its_own_adapter_only() -> None:
    beginnings = PromptBeginnings(block=2)
    for adapter in (None, "red", "red"):
        beginnings.note(adapter, [1, 2, 3, 4, 5])
    assert [beginnings.shared_tokens(adapter, [1, 2, 3, 4, 5]) for adapter in (None, "red", "blue")] == [0, 4, 0]


def test_only_the_newest_are_remembered_and_what_is_asked_for_again_is_new() -> None:
    beginnings = PromptBeginnings(block=1, most=4)
    for prompt in ([1], [1], *([number] for number in range(2, 5)), [1], [5], [2]):
        beginnings.note(None, prompt)
    assert [beginnings.shared_tokens(None, [number]) for number in (1, 2, 5)] == [1, 0, 0]
