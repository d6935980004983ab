from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.conversation.bridge import TOOL, BridgeRefused, Recorded, bridge, limits_of
from ratchet.conversation.conversation import Conversation
from ratchet.conversation.messages import canonical
from ratchet.conversation.template import ChatTemplate
from ratchet.service.errors import PromptRefused
from tests.quick import rounds
from tests.ratchet.conversation.speakers import MODELS, codec, template

NO_TOOLS = "tools: the template does not write them, so a model is not told which there are"

text = st.text(st.sampled_from("ab .\n<>é|{}\"'"), max_size=12) | st.sampled_from(
    ["<|im_end|>", "<|eot_id|> x", "<think>"]
)
calls = st.sampled_from("ab").map(
    lambda box: [{"id": "call00001", "function": {"name": "look", "arguments": f'{{"box": "{box}"}}'}}]
)
answers_given = st.fixed_dictionaries(
    {"content": text, "reasoning_content": st.none() | text, "tool_calls": st.none() | calls}
)
cuts = st.lists(st.booleans(), min_size=5, max_size=5)


@pytest.mark.parametrize("name", sorted(MODELS))
@settings(max_examples=rounds(60), deadline=None)
@given(
    system=st.booleans(),
    answers=st.lists(answers_given, min_size=1, max_size=5),
    asked=st.lists(text, min_size=6, max_size=6),
    cut=cuts,
)
def test_the_bridge_equals_the_whole_rendering_where_the_template_is_monotone_and_is_refused_elsewhere(
    name: str, system: bool, answers: list[dict[str, Any]], asked: list[str], cut: list[bool]
) -> None:
    """The model samples what its template would write, maybe not to the end of its turn; what a client says in between
    is anything."""
    spoken = template(name)
    history: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}] if system else []
    history.append({"role": "user", "content": asked[0]})
    conversation = Conversation(spoken)
    call = conversation.ask(history, [TOOL])
    for answer, further, is_cut in zip(answers, asked[1:], cut, strict=False):
        message = canonical({"role": "assistant"} | answer)
        try:
            sampled, end = as_written(spoken, call.request_messages, message)
        except (NotWritten, PromptRefused):
            return
        ids = codec().encode(sampled)
        ids += [] if is_cut and ids and not spoken.ends_itself(ids) else [end]
        conversation.answer(call, message, ids, [-1.0] * len(ids))
        role = "tool" if answer["tool_calls"] else "user"
        history = [*history, message, {"role": role, "content": further, "tool_call_id": "call00001"}]
        prompt = spoken.remove_marks(spoken.render(call.request_messages, [TOOL], ask=True))
        try:
            whole = spoken.remove_marks(spoken.render([canonical(one) for one in history], [TOOL], ask=True))
            following = conversation.ask(history, [TOOL])
        except PromptRefused:
            return

        if whole.startswith(prompt + sampled + spoken.ends[end]):
            assert following.parent is call and following.broke is None
            assert following.prompt_ids == (*call.prompt_ids, *ids, *following.added)
        else:
            assert following.parent is None and following.broke == "retokenised"
        assert codec().decode(following.prompt_ids) == whole
        call = following


class NotWritten(Exception):
    """The template does not write this answer behind the start of an answer."""


def as_written(spoken: ChatTemplate, asked: list[Any], message: dict[str, Any]) -> tuple[str, int]:
    before = spoken.render(asked, [TOOL], ask=True)
    alone = spoken.render([*asked, message], [TOOL], ask=False)
    found = spoken.end_of_turn(alone, len(before))
    if found is None or not alone.startswith(before):
        raise NotWritten
    (end,) = [number for number, token in spoken.ends.items() if token == alone[found[0] : found[1]]]
    return spoken.remove_marks(alone[len(before) : found[0]]), end


def test_what_each_template_can_not_bridge_is_said_with_the_consequence() -> None:
    assert limits_of(template("smollm2")) == limits_of(template("smollm2"), tools=True) == [NO_TOOLS]
    assert limits_of(template("smollm2"), tools=False) == []
    assert limits_of(template("llama3_1")) == []
    assert limits_of(template("qwen2_5")) == []
    unreasoned, reasoned = limits_of(template("qwen3"))
    assert unreasoned.startswith("a tool's result: the template writes an answer otherwise")
    assert reasoned.startswith(
        "a further question to an answer with reasoning: the template writes an answer otherwise"
    )
    assert reasoned.endswith("each such turn begins a new segment, whose past is encoded again")


def test_a_template_that_never_writes_the_end_of_an_answer_is_refused() -> None:
    plain = ChatTemplate(
        "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}",
        codec(),
        control=("<|eot_id|>",),
        ends={3: "<|eot_id|>"},
    )
    recorded = Recorded([{"role": "user", "content": "a"}], {"role": "assistant", "content": "b"}, " b", ended=True)

    with pytest.raises(BridgeRefused, match="does not write the token that ends an answer"):
        bridge(plain, recorded, [{"role": "user", "content": "c"}])
    assert any("each such turn begins a new segment" in limit for limit in limits_of(plain))


@pytest.mark.parametrize("name", ["smollm2", "qwen2_5", "llama3_1"])
def test_an_answer_that_was_cut_is_ended_by_the_bridge(name: str) -> None:
    spoken = template(name)
    asked, answer = [{"role": "user", "content": "a"}], {"role": "assistant", "content": "b and"}
    further = [{"role": "user", "content": "go on"}]

    whole = bridge(spoken, Recorded(asked, answer, "b and", ended=True), further)
    cut = bridge(spoken, Recorded(asked, answer, "b and", ended=False), further)

    assert cut in {end + whole for end in spoken.ends.values()}
