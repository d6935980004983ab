"""The tool model's words: what its template writes of tool calls is a few tokens, is read back, and can be bridged."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from demos.toy.make import make_models, read_recipe
from demos.toy.recipe import FLAWLESS, TOOL_USER, ToolRecipe
from demos.toy.tools.pretraining import assistant_tokens
from demos.toy.tools.task import TOOLS, Workspace, outcome, tool_task
from demos.toy.tools.teacher import demonstration
from demos.toy.tools.tokenizer import ASSISTANT, END, VOCABULARY, tool_tokenizer
from ratchet.conversation.bridge import limits_of
from ratchet.conversation.conversation import Conversation
from ratchet.conversation.segments import segments_of
from ratchet.conversation.template import ChatTemplate
from ratchet.models.tokenization import chat_template, template_of
from ratchet.rollouts.parsing import parser_for, parser_name

TOKENIZER = tool_tokenizer(1024)
QUICK: ToolRecipe = replace(
    TOOL_USER, name="quick", hidden=32, intermediate=32, layers=1, heads=1, steps=3, careful_steps=1, batch=2
)


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    found = chat_template(TOKENIZER, {TOKENIZER.eos_token_id})
    assert found is not None
    return found


def test_it_has_a_token_for_each_thing_it_says() -> None:
    call = '<tool_call>{"name": "add", "arguments": {"a": 17, "b": 25}}</tool_call>'
    assert TOKENIZER.convert_ids_to_tokens(TOKENIZER.encode(call)) == [
        '<tool_call>{"name": "add", "arguments": {"a": ',
        "17",
        ', "b": ',
        "25",
        "}}</tool_call>",
    ]
    assert len(TOKENIZER) == VOCABULARY == 362


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_any_text_goes_through_unharmed(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, split_special_tokens=True)) == text


def test_the_whole_template_can_be_bridged_and_its_calls_are_read_by_a_parser_that_is_there(
    template: ChatTemplate,
) -> None:
    assert limits_of(template) == []
    assert parser_name(template.source) == "hermes"


def sampled_turns(text: str) -> list[str]:
    """What the assistant says in a demonstration, each turn with its end."""
    return [turn.partition(END)[0] + END for turn in text.split(ASSISTANT)[1:]]


def recorded(template: ChatTemplate, turns: Sequence[str], workspace: Workspace) -> tuple[Conversation, str]:
    """The agent's conversation where the model says just this; and what it said in the end."""
    conversation, parser = Conversation(template), parser_for(template.source)
    messages: list[dict[str, Any]] = [{"role": "user", "content": workspace.task.question}]
    said = ""
    for number, turn in enumerate(turns):
        call = conversation.ask(messages, TOOLS)
        ids = TOKENIZER.encode(turn)
        parsed = parser.parse(template.text(ids), whole=True)
        calls = [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in parsed.calls
        ]
        message = {"role": "assistant", "content": parsed.content, "tool_calls": calls}
        conversation.answer(call, message, ids, [-0.5] * len(ids))
        messages.append(message)
        for name, arguments in parsed.calls:
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": workspace.use(name, arguments)})
        said = parsed.content
    return conversation, said


def test_a_demonstration_is_what_the_template_writes_of_it_and_one_segment(template: ChatTemplate) -> None:
    """Told through the recorder's account, turn by turn, with the tools doing what they do."""
    rng = random.Random(3)
    for _ in range(50):
        task = tool_task(rng, "train")
        text = demonstration(task, FLAWLESS, rng)
        workspace = Workspace(task)
        conversation, said = recorded(template, sampled_turns(text), workspace)
        (segment,) = segments_of(conversation)
        ids = [*segment.prompt_ids, *segment.completion_ids]
        assert TOKENIZER.decode(ids) == text and TOKENIZER.encode(text) == ids
        assert outcome(workspace.changed_files, said) == task.answer
        assert conversation.breaks == {}


def test_the_loss_is_on_what_the_assistant_says_and_the_ends_of_its_turns() -> None:
    task, rng = tool_task(random.Random(4), "train"), random.Random(4)
    text = demonstration(task, TOOL_USER.care, rng)
    ids = torch.tensor([TOKENIZER.encode(text)])
    said = ids[assistant_tokens(TOKENIZER, ids)].tolist()
    assert TOKENIZER.decode(said) == "".join(sampled_turns(text))


def test_it_is_made_like_the_other_toys_and_loads_with_its_template(tmp_path: Path) -> None:
    (first,) = make_models(tmp_path, 0, [QUICK])
    (again,) = make_models(tmp_path, 0, [QUICK])
    assert (first["cached"], again["cached"], first["parameters"]) == (False, True, again["parameters"])
    assert read_recipe(tmp_path / "quick", replace(QUICK, careful_steps=2), 0) is None
    found = template_of(tmp_path / "quick")
    assert found is not None and limits_of(found) == []
