from __future__ import annotations

from typing import Any

import pytest

from ratchet.conversation.bridge import TOOL
from ratchet.conversation.conversation import Call, Conversation
from ratchet.conversation.segments import segments_of
from ratchet.service.errors import PromptRefused
from tests.ratchet.conversation.speakers import SPECIAL, codec, template

Messages = list[dict[str, Any]]
OTHER_TOOL = {"type": "function", "function": TOOL["function"] | {"name": "weigh"}}
SYSTEM = {"role": "system", "content": "Be brief."}
ASKED: Messages = [SYSTEM, {"role": "user", "content": "What is in it?"}]
END = SPECIAL.index("<|im_end|>")


def say(conversation: Conversation, call: Call, text: str, *, ended: bool = True) -> dict[str, Any]:
    ids = codec().encode(text) + [END] * ended
    message = {"role": "assistant", "content": text}
    conversation.answer(call, message, ids, [-0.5] * len(ids))
    return message


def further(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_linear_rollout_is_one_segment_whose_tokens_are_those_of_the_whole_rendering() -> None:
    spoken = template("qwen2_5")
    conversation, history = Conversation(spoken), list(ASKED)
    for number in range(8):
        answer = say(conversation, conversation.ask(history, [TOOL]), f"A coin, {number} of them.")
        history += [answer, further(f"And in box {number}?")]
    last = conversation.ask(history, [TOOL])

    (segment,) = segments_of(conversation)

    assert not conversation.breaks and segment.broke is None and len(segment.spans) == 8
    whole = spoken.encode(spoken.render(history, [TOOL], ask=True))
    assert list(last.prompt_ids) == whole
    assert [*segment.prompt_ids, *segment.completion_ids, *last.added] == whole
    sampled = [codec().decode(segment.completion_ids[start:end]) for start, end in segment.spans]
    assert sampled == [f"A coin, {number} of them.<|im_end|>" for number in range(8)]


def test_what_was_sampled_is_never_tokenised_again() -> None:
    conversation = Conversation(template("smollm2"))
    first = conversation.ask(ASKED)
    odd = [*(token for letter in "coin" for token in codec().encode(letter)), END]
    assert odd != [*codec().encode("coin"), END]
    conversation.answer(first, {"content": "coin"}, odd, [-1.0] * len(odd))

    second = conversation.ask([*ASKED, {"role": "assistant", "content": "coin"}, further("Sure?")])

    assert second.prompt_ids[: len(first.prompt_ids) + len(odd)] == (*first.prompt_ids, *odd)


def test_an_answer_that_comes_back_otherwise_written_is_the_recorded_one_unless_strict() -> None:
    for strict in (False, True):
        conversation = Conversation(template("smollm2"), strict=strict)
        first = conversation.ask(ASKED)
        say(conversation, first, " A coin.\n")
        history = [*ASKED, {"role": "assistant", "content": "A coin."}, further("Sure?")]

        second = conversation.ask(history)
        say(conversation, second, "Yes.")
        third = conversation.ask([*history, {"role": "assistant", "content": "Yes."}, further("Why?")])

        assert (second.parent is first) is not strict and third.parent is second
        assert conversation.normalised_count == (0 if strict else 1)
        assert dict(conversation.breaks) == ({"rewritten": 1} if strict else {})


@pytest.mark.parametrize(("back", "linear"), [("print(1)\n</code>", True), ("print(1)\n</code> and more", False)])
def test_a_stop_string_that_a_client_puts_back_was_sampled_and_what_it_adds_was_not(back: str, linear: bool) -> None:
    conversation = Conversation(template("qwen2_5"))
    first = conversation.ask(ASKED)
    ids = codec().encode("print(1)\n</code>")
    conversation.answer(first, {"content": "print(1)\n"}, ids, [-1.0] * len(ids))

    second = conversation.ask([*ASKED, {"role": "assistant", "content": back}, further("It printed 1.")])

    assert (second.parent is first, conversation.normalised_count) == (linear, int(linear))
    assert conversation.breaks == ({} if linear else {"rewritten": 1})


def test_a_retry_gets_the_call_it_made_and_never_forks() -> None:
    conversation = Conversation(template("smollm2"))
    call = conversation.ask(ASKED)

    assert conversation.ask(ASKED, retry=1) is call
    say(conversation, call, "A coin.")
    assert conversation.ask(ASKED, retry=2) is call
    assert (conversation.replayed, len(conversation.calls), dict(conversation.breaks)) == (2, 1, {})


@pytest.mark.parametrize("name", ["smollm2", "qwen3"])
def test_a_retry_gets_no_answer_that_its_client_has_gone_on_from(name: str) -> None:
    """It asks the same once more, and its first try never came: the answer of then was for then."""
    conversation = Conversation(template(name))
    first = conversation.ask(ASKED)
    thought = {"role": "assistant", "content": "A coin.", "reasoning_content": "hm"}
    conversation.answer(first, thought, codec().encode("A coin."), [-1.0] * len(codec().encode("A coin.")))
    say(conversation, conversation.ask([*ASKED, thought, further("Sure?")]), "Yes.")

    again = conversation.ask(ASKED, retry=1)

    assert again is not first and conversation.ask(ASKED, retry=2) is again
    assert conversation.replayed == 1


def test_the_same_asked_twice_and_sent_again_twice_is_answered_twice() -> None:
    """A client counts its tries: the second that says to be the first is of the other request."""
    conversation = Conversation(template("smollm2"))
    calls = [conversation.ask(ASKED), conversation.ask(ASKED)]
    for call in calls:
        say(conversation, call, "A coin.")

    again = [conversation.ask(ASKED, retry=1) for _ in range(3)]

    assert again[:2] == calls[::-1] and again[2] not in calls
    assert conversation.ask(ASKED, retry=2) is again[2]


def test_a_retry_of_what_was_aborted_is_a_new_call() -> None:
    conversation = Conversation(template("smollm2"))
    call = conversation.ask(ASKED)
    conversation.abort(call, codec().encode("A c"), [-1.0] * len(codec().encode("A c")))

    again = conversation.ask(ASKED, retry=1)
    say(conversation, again, "A coin.")

    assert again is not call and again.prompt_ids == call.prompt_ids
    assert dict(conversation.breaks) == {"aborted": 1}
    assert [segment.broke for segment in segments_of(conversation)] == [None, "aborted"]


def compacted(conversation: Conversation, history: Messages) -> Call:
    return conversation.ask([SYSTEM, further("So far: a coin was found. Go on.")])


def edited(conversation: Conversation, history: Messages) -> Call:
    return conversation.ask([SYSTEM, further("What is under it?"), *history[2:], further("Sure?")])


def asked_otherwise_after_the_answer(conversation: Conversation, history: Messages) -> Call:
    say(conversation, conversation.ask([*history, further("Sure?")], [TOOL]), "Yes.")
    return conversation.ask([*history, further("Really?")], [TOOL])


def with_other_tools(conversation: Conversation, history: Messages) -> Call:
    return conversation.ask([*history, further("Sure?")], [TOOL, OTHER_TOOL])


def at_the_same_time(conversation: Conversation, history: Messages) -> Call:
    conversation.ask([*history, further("Sure?")], [TOOL])
    return conversation.ask([*history, further("Why?")], [TOOL])


def asked_twice(conversation: Conversation, history: Messages) -> Call:
    return conversation.ask(ASKED, [TOOL])


def by_a_helper(conversation: Conversation, history: Messages) -> Call:
    return conversation.ask([{"role": "system", "content": "You review."}, further("Is it right?")])


@pytest.mark.parametrize(
    ("agent", "kind"),
    [
        (compacted, "rewritten"),
        (edited, "rewritten"),
        (asked_otherwise_after_the_answer, "rewritten"),
        (with_other_tools, "tools_changed"),
        (at_the_same_time, "parallel"),
        (asked_twice, "parallel"),
        (by_a_helper, "parallel"),
    ],
)
def test_a_break_has_a_name(agent: Any, kind: str) -> None:
    conversation = Conversation(template("qwen2_5"))
    answer = say(conversation, conversation.ask(ASKED, [TOOL]), "A coin.")
    calls = len(conversation.calls)

    call = agent(conversation, [*ASKED, answer])
    for unanswered in conversation.calls[calls:]:
        if unanswered.open:
            say(conversation, unanswered, "Done.")

    assert call.broke == kind and dict(conversation.breaks)[kind] == 1
    segments = segments_of(conversation)
    assert [segment.broke for segment in segments] == [None, kind]
    assert sum(segment.sampled_tokens for segment in segments) == sum(len(one.ids) for one in conversation.calls)


def test_where_the_template_drops_reasoning_the_past_is_rendered_anew_and_the_break_is_named() -> None:
    conversation = Conversation(template("qwen3"))
    first = conversation.ask(ASKED)
    ids = [*codec().encode("<think>\nIt rattles.\n</think>\n\nA coin."), END]
    message = {"role": "assistant", "content": "A coin.", "reasoning_content": "It rattles."}
    conversation.answer(first, message, ids, [-1.0] * len(ids))

    second = conversation.ask([*ASKED, message, further("Sure?")])

    assert (second.parent, second.broke) == (None, "retokenised")
    assert "rattles" not in codec().decode(second.prompt_ids)


def test_tools_that_a_template_does_not_write_break_nothing() -> None:
    conversation = Conversation(template("smollm2"))
    answer = say(conversation, conversation.ask(ASKED, [TOOL]), "A coin.")

    assert conversation.ask([*ASKED, answer, further("Sure?")], [OTHER_TOOL]).broke is None


def test_a_request_that_is_refused_leaves_nothing_behind() -> None:
    conversation = Conversation(template("smollm2"))

    with pytest.raises(PromptRefused):
        conversation.ask([{"role": "user", "content": [{"type": "image_url"}]}])

    assert conversation.calls == [] and segments_of(conversation) == ()


def test_a_call_is_answered_once_and_with_a_log_probability_for_each_token() -> None:
    conversation = Conversation(template("smollm2"))
    call = conversation.ask(ASKED)

    with pytest.raises(ValueError, match="2 tokens were sampled with 1"):
        conversation.answer(call, {"content": "a"}, [1, 2], [-1.0])
    say(conversation, call, "a")
    with pytest.raises(ValueError, match="answered or aborted before"):
        conversation.abort(call)
