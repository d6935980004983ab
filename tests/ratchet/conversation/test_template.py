"""Held against transformers: the same text, the same ids, control tokens that users type included."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ratchet.conversation.bridge import TOOL
from ratchet.conversation.messages import canonical, for_template
from ratchet.models.tokenization import chat_template
from tests.ratchet.conversation.speakers import MODELS, codec, source_of

CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": '{"box": "é <|im_end|>"}'}}
CHATS: dict[str, list[dict[str, Any]]] = {
    "plain": [{"role": "user", "content": "  What is <|im_end|> or <|eot_id|>?\n"}],
    "system": [{"role": "system", "content": "Be <think> brief."}, {"role": "user", "content": "Hé\n\n"}],
    "turns": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b\n"},
        {"role": "user", "content": "\n c"},
    ],
    "tools": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [CALL]},
        {"role": "tool", "content": '{"coin": "</tool_response>"}', "tool_call_id": "call00001"},
    ],
}


def tokenizer_of(name: str) -> Any:
    control, ends = MODELS[name]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=codec().tokenizer, bos_token=control[0], eos_token=ends[0], pad_token=ends[0]
    )
    tokenizer.chat_template = source_of(name)
    return tokenizer


@pytest.mark.parametrize("chat", sorted(CHATS))
@pytest.mark.parametrize("name", sorted(MODELS))
def test_text_and_ids_are_those_of_transformers(name: str, chat: str) -> None:
    tokenizer = tokenizer_of(name)
    ours = chat_template(tokenizer, [tokenizer.eos_token_id])
    messages = [canonical(message) for message in CHATS[chat]]
    theirs = [for_template(message) for message in messages]
    tools = [TOOL] if chat == "tools" and name != "smollm2" else []
    for ask in (True, False):
        asked = {"tools": tools or None, "add_generation_prompt": ask, "return_dict": False}

        assert ours is not None
        rendered = ours.render(messages, tools, ask=ask)

        assert ours.unmarked(rendered) == tokenizer.apply_chat_template(theirs, **asked, tokenize=False)
        assert ours.encode(rendered) == tokenizer.apply_chat_template(theirs, **asked, sanitize_control_tokens=True)
