"""What is said: the answers of the scripted engine, and the conversations that agents hold with it.

Words of our documents, by a byte-level BPE tokenizer of them, under Qwen 2.5's chat template with a tool on offer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratchet.conversation.bridge import TOOL
from tests.ratchet.conversation.speakers import ROOT, codec, source_of

MODEL = "scripted"
TEMPLATE = "qwen2_5"
END = "<|im_end|>"
CONTEXT = 32_768
ANSWERS = 16
SYSTEM_WORDS, ASKED_WORDS = 60, 30
"""About twice as many tokens."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`ids` with the token that ends it, `texts` without: one for each token before that."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(self.texts)


def vocabulary() -> list[str]:
    return sorted(set(re.findall(r"\b[a-z]{2,9}\b", (ROOT / "docs" / "messages.md").read_text(encoding="utf-8"))))


def answers(tokens: int, number: int = ANSWERS) -> list[Answer]:
    """Each of just so many tokens, its end included; no two alike."""
    rng, words, bpe = random.Random(7), vocabulary(), codec()
    (end,) = bpe.encode(END)
    found = []
    for _ in range(number):
        said = " ".join(rng.choices(words, k=tokens))
        ids = bpe.encode(said.capitalize())[: tokens - 1]
        found.append(Answer((*ids, end), tuple(bpe.decode([one]) for one in ids)))
    return found


def asked(number: int) -> Iterator[dict[str, Any]]:
    """The messages of one agent, without the answers: the system's, then one for each turn, without end."""
    rng, words = random.Random(number), vocabulary()
    yield {"role": "system", "content": f"Agent {number}. " + " ".join(rng.choices(words, k=SYSTEM_WORDS))}
    while True:
        yield {"role": "user", "content": " ".join(rng.choices(words, k=ASKED_WORDS))}


def request(messages: list[dict[str, Any]], *, stream: bool) -> dict[str, Any]:
    return {"model": MODEL, "messages": messages, "tools": [TOOL], "max_tokens": 1024, "stream": stream}


def save_tokenizer(folder: Path) -> None:
    """As a model's folder has it. Imports transformers."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=codec().tokenizer,
        pad_token="<|endoftext|>",
        eos_token=END,
        chat_template=source_of(TEMPLATE),
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
