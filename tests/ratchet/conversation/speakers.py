"""Templates and a tokenizer to hold conversations with: those of real models, a small byte-level BPE of our documents.

The templates are those that the pinned TRL has of the models' own (`trl/chat_templates/`), read without importing it;
SmolLM2's is that of HuggingFaceTB/SmolLM2-135M-Instruct.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ratchet.conversation.template import ChatTemplate, Codec

ROOT = Path(__file__).parents[3]
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")
QWEN = (*CHATML, "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
SPECIAL = tuple(dict.fromkeys((*LLAMA, *QWEN)))
"""Special tokens by id: the trainer of a tokenizer puts them first."""
MODELS = {
    "smollm2": (CHATML, ("<|im_end|>",)),
    "llama3": (LLAMA, ("<|eot_id|>", "<|end_of_text|>")),
    "llama3_1": (LLAMA, ("<|end_of_text|>", "<|eom_id|>", "<|eot_id|>")),
    "qwen2_5": (QWEN, ("<|im_end|>", "<|endoftext|>")),
    "qwen3": (QWEN, ("<|im_end|>", "<|endoftext|>")),
}
NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)


def source_of(name: str) -> str:
    if name == "smollm2":
        return SMOLLM2
    found = find_spec("trl")
    assert found is not None and found.submodule_search_locations
    return (Path(found.submodule_search_locations[0]) / "chat_templates" / f"{name}.jinja").read_text()


class BpeCodec:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str, *, plain: bool = False) -> list[int]:
        self.tokenizer.encode_special_tokens = plain
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)


@cache
def codec() -> BpeCodec:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([(ROOT / "docs" / "messages.md").read_text()], trainer)
    return BpeCodec(tokenizer)


@cache
def template(name: str, speaks: Codec | None = None, **variables: Any) -> ChatTemplate:
    control, ends = MODELS[name]
    tokenizer = codec().tokenizer
    return ChatTemplate(
        source_of(name),
        speaks or codec(),
        control=control,
        ends={tokenizer.token_to_id(end): end for end in ends},
        variables={"bos_token": control[0], "eos_token": ends[0]} | variables,
        now=lambda: NOON,
    )
