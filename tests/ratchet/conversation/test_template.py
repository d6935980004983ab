"""Held against transformers: the same text, the same ids, control tokens that users type included."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ratchet.conversation.bridge import TOOL
from ratchet.conversation.messages import canonical, for_template
from ratchet.models.tokenization import ConcurrentCodec, chat_template, template_of
from tests.ratchet.conversation.speakers import MODELS, codec, source_of

ROOT = Path(__file__).parents[3]
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
@pytest.mark.parametrize("codec_of", [None, ConcurrentCodec])
def test_text_and_ids_are_those_of_transformers(name: str, chat: str, codec_of: Any) -> None:
    tokenizer = tokenizer_of(name)
    ours = chat_template(tokenizer, [tokenizer.eos_token_id], codec=codec_of)
    messages = [canonical(message) for message in CHATS[chat]]
    theirs = [for_template(message) for message in messages]
    tools = [TOOL] if chat == "tools" and name != "smollm2" else []
    for ask in (True, False):
        asked = {"tools": tools or None, "add_generation_prompt": ask, "return_dict": False}

        assert ours is not None
        rendered = ours.render(messages, tools, ask=ask)

        assert ours.remove_marks(rendered) == tokenizer.apply_chat_template(theirs, **asked, tokenize=False)
        assert ours.encode(rendered) == tokenizer.apply_chat_template(theirs, **asked, sanitize_control_tokens=True)


def test_what_a_template_marks_as_generation_is_rendered_as_by_transformers() -> None:
    tokenizer = tokenizer_of("smollm2")
    tokenizer.chat_template = "{% for m in messages %}{% generation %}<{{ m.content }}>{% endgeneration %}{% endfor %}"
    ours = chat_template(tokenizer, [tokenizer.eos_token_id])
    messages = [canonical(message) for message in CHATS["turns"]]
    theirs = tokenizer.apply_chat_template([for_template(one) for one in messages], tokenize=False)

    assert ours is not None
    assert ours.remove_marks(ours.render(messages, [], ask=False)) == theirs


def test_all_tokens_of_a_models_folder_that_end_an_answer_are_known(tmp_path: Path) -> None:
    tokenizer = tokenizer_of("llama3_1")
    tokenizer.save_pretrained(tmp_path)
    ends = tokenizer.convert_tokens_to_ids(["<|eot_id|>", "<|eom_id|>"])
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))

    template = template_of(tmp_path)

    assert template is not None
    assert sorted(template.ends.values()) == ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]


def documented(heading: str) -> str:
    """The Python below it."""
    page = (ROOT / "docs" / "conversations.md").read_text()
    (code, *_) = re.findall(r"```python\n(.*?)```", page.split(f"\n## {heading}\n")[1], re.DOTALL)
    return str(code)


def test_the_agent_of_the_documents_makes_a_sample_of_one_segment(tmp_path: Path) -> None:
    tokenizer_of("qwen2_5").save_pretrained(tmp_path)
    code = documented("An agent of your own, recorded")
    end = codec().tokenizer.token_to_id("<|im_end|>")

    def generate(prompt: tuple[int, ...]) -> tuple[list[int], list[float]]:
        ids = [*codec().encode(f"look {len(prompt)}"), end]
        return ids, [-0.5] * len(ids)

    done: dict[str, Any] = {"generate": generate, "run_tool": lambda asked: f"saw {asked}"}
    exec(code.replace("models/small", str(tmp_path)), done)

    sample = done["sample"]
    (segment,) = sample.segments
    assert (len(segment.spans), sample.usage.calls, sample.usage.breaks, sample.program) == (3, 3, {}, "my-agent")
    assert [turn.role for turn in segment.turns] == ["user", "assistant"] * 3


def test_the_unchanged_agent_of_the_documents_runs(tmp_path: Path) -> None:
    tokenizer_of("qwen2_5").save_pretrained(tmp_path)
    (tmp_path / "my_agent.py").write_text("import os; print(os.environ['OPENAI_BASE_URL'][:17])")
    code = documented("An agent that you don't change, recorded")
    command = repr([sys.executable, str(tmp_path / "my_agent.py")])
    done: dict[str, Any] = {}

    exec(code.replace("models/small", str(tmp_path)).replace('["python", "my_agent.py"]', command), done)

    sample = done["sample"]
    assert (sample.text, sample.status, sample.segments) == ("http://127.0.0.1:", "finished", None)
