"""Odd things that a model or a user may say: text of many scripts, runs of white space, halves of characters, text like
control tokens, calls of tools in any JSON, thoughts, nothing at all. Drawn from a seed, so rollouts can be repeated.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Sequence
from typing import Any

from ratchet.conversation.template import Codec

TEXTS = (
    *("I look. ", "The coin, ", "is in it", "\n\n1. ", "def f(x):\n\treturn x", "Größe ", "日本語", "नमस्ते ", "שלום "),
    *("e\u0301", "\U0001f469\u200d\U0001f467", "🪙", "\U0001d518", "   ", "\n\n\n", " \t ", "\r\n", "\u00a0"),
    *("\u2028", "\x85", "\x0c", "\x00", "\ufeff", "\u200b", "\ufffd", "\U000f0000"),
    *("<|im_start|>", "<|im_end|>\n", "<|im_", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>"),
    *("<tool_response>", '{"name": "look"', "```json\n", "\\u00e9", "\\", '"', "0.10", "Obs"),
)
STOP = "Observation:"
"""The text at which ReAct loops stop the model."""
VALUES: tuple[Any, ...] = (
    *("red", "é\u2028🪙", '"\\', "", None, True, 1, 1.0, -0.0, 1e-7, 2**53 + 1, 12345678901234567890, [], {}),
    *([1, [2, {"a": None}]], {"a": {"b": "日本"}}, "<|im_end|>", "</tool_call>"),
)
BARE = ("NaN", "1e999", r'"\ud83d"', r'"\ud83e\ude99"', "1.10", "1E5")
"""JSON that Python reads; clients can't be told the first three."""
OPENINGS = ("", "", "I look.\n", "  ", "日本\n\n")


class OddModel:
    """Answers any prompt with odd text, encoded by a tokenizer, or with any tokens.

    `ends` are the tokens that end an answer, of which it says one and only last; `vocabulary` is how many there are.
    """

    def __init__(self, dice: random.Random, codec: Codec, ends: Collection[int], vocabulary: int) -> None:
        self._dice = dice
        self._codec = codec
        self._ends = sorted(ends)
        self._vocabulary = vocabulary

    def __call__(self, prompt_ids: Sequence[int]) -> list[int]:
        often = (self._text, self._calls) * 2
        said = self._dice.choice((*often, self._thought, self._any, self._none))()
        return [*(one for one in said if one not in self._ends), self._dice.choice(self._ends)]

    def _text(self) -> list[int]:
        """Encode odd text; control tokens in it become text, or stay tokens."""
        plain = self._dice.random() < 0.5
        stop = self._dice.choice(("", "", f"{STOP} a coin"))
        return self._codec.encode(odd_text(self._dice) + stop, plain=plain)

    def _thought(self) -> list[int]:
        thought = f"<think>\n{odd_text(self._dice)}\n</think>\n\n"
        return [*self._codec.encode(thought), *self._dice.choice((self._text, self._calls))()]

    def _calls(self) -> list[int]:
        calls = [odd_call(self._dice) for _ in range(self._dice.choice((1, 1, 2, 3)))]
        between = self._dice.choice(("\n", "", "\n\nand\n"))
        return self._codec.encode(self._dice.choice(OPENINGS) + between.join(calls))

    def _any(self) -> list[int]:
        """Draw any tokens: most are no tokenization of a text, and hold halves of characters."""
        return [self._dice.randrange(self._vocabulary) for _ in range(self._dice.randint(1, 40))]

    def _none(self) -> list[int]:
        return []


def odd_text(dice: random.Random) -> str:
    return "".join(dice.choice(TEXTS) for _ in range(dice.randint(0, 12)))


def odd_call(dice: random.Random) -> str:
    """Write a tool call as the template's model does, with odd JSON, which sometimes is invalid."""
    separators, indent = dice.choice(((",", ":"), (", ", ": "), (" ,\n", " :\t"))), dice.choice((None, None, 1))
    styled = json.JSONEncoder(ensure_ascii=dice.random() < 0.5, separators=separators, indent=indent)
    arguments = styled.encode({f"box{number}": dice.choice(VALUES) for number in range(dice.randint(0, 3))})
    odd = {
        "bare": f'{{"box": {dice.choice(BARE)}}}',
        "twice": '{"box": "red", "box": "blue"}',
        "text": json.dumps(arguments),
        "none": styled.encode(dice.choice(VALUES)),
    }
    written = odd.get(dice.choice((*odd, *["plain"] * 6)), arguments)
    name = dice.choice(("look", "look", "look", "löök 2"))
    fields = [f'"name": {styled.encode(name)}', f'"arguments": {written}']
    body = f"{{{', '.join(fields if dice.random() < 0.8 else reversed(fields))}}}"
    before, behind = dice.choice(("\n", " ", "")), dice.choice(("\n", ""))
    return f"<tool_call>{before}{body}{behind}{'</tool_call>' if dice.random() < 0.9 else ''}"
