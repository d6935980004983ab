"""Fields of a chat completion, honoured or not: one list for both fronts, the public one of a fleet and the recorder's.

Whatever changes an answer is honoured, refused by name, or a wish: taken without effect, and told of as `overruled`
(in `ratchet` of a public answer, in `usage` of a recorded rollout).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schemas.messages.base import LONGEST_STOP, MOST_STOPS

HONOURED = frozenset(
    {
        "model",
        "messages",
        "n",
        "temperature",
        "top_p",
        "max_tokens",
        "max_completion_tokens",
        "stream",
        "stream_options",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "parallel_tool_calls",
        "logprobs",
        "user",
        "metadata",
    }
)
WISHES: Mapping[str, tuple[Any, ...]] = {
    "seed": (),
    "top_k": (),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "reasoning_effort": (),
    "verbosity": ("medium",),
}
"""Wishes, with the values that wish for nothing. The sampling stays the policy's."""
REFUSED: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "top_logprobs": ("only the log-probability of the sampled token is known", (0,)),
    "functions": ("functions go by the name of tools", ([],)),
    "function_call": ("functions go by the name of tools", ("none", "auto")),
    "web_search_options": ("nothing is searched here: offer a tool", ()),
    "modalities": ("the agents read and write text", ([], ["text"])),
    "audio": ("the agents read and write text", ()),
    "prediction": ("there is no predicted output", ()),
}
"""The reasons, and the values that ask for none of it."""
HARMLESS = frozenset({"store", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
"""Fields without effect on any answer."""
DIFFERENT: Mapping[str, str] = {
    "model": "a rollout has one, whatever it is called; of the fleet's it is one by name",
    "n": "a rollout is answered once: n must be 1; the public front gives so many of the group",
    "temperature": "a rollout is sampled as its Work says, so the recorder takes it as a wish",
    "top_p": "a rollout is sampled as its Work says, so the recorder takes it as a wish",
    "seed": "answers are batched with others, so it is a wish; on the public front at temperature 0 nothing is drawn, "
    "and it holds",
    "user": "a rollout is one session already",
    "metadata": "a rollout is of a task that has its own",
}
"""Differences between the fronts, with their reasons. A field that is in none of these lists is refused on the public
front, where a program is written for the fleet; the recorder takes it without effect, from programs as they are."""
SHOWN = 200
"""Characters of a text that was wished for."""


def refusal(name: str, value: Any) -> str | None:
    """Say why a field with this value is refused; None where it asks for nothing."""
    why, nothing = REFUSED[name]
    return None if value is None or value in nothing else why


def wishes(given: Mapping[str, Any]) -> dict[str, float | str]:
    """Those of a request, by their names; what is neither a number nor a text as its JSON, all of it cut short."""
    found = {name: given.get(name) for name in WISHES}
    return {
        name: value if isinstance(value, int | float) else _text(value)
        for name, value in found.items()
        if value is not None and value not in WISHES[name]
    }


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else json.dumps(value, sort_keys=True))[:SHOWN]


def stop_strings(given: Any, name: str = "stop") -> tuple[str, ...]:
    """Those that a request gives, under that name. An empty one asks for nothing: it would end every answer at once.

    Raises ValueError for what is not taken.
    """
    listed = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(word, str) for word in listed):
        raise ValueError(f"{name} must be a text or a list of texts")
    words = tuple(word for word in listed if word)
    if len(words) > MOST_STOPS:
        raise ValueError(f"{name} must be {MOST_STOPS} texts at most")
    if any(len(word) > LONGEST_STOP for word in words):
        raise ValueError(f"a text of {name} must have {LONGEST_STOP:,} characters at most")
    return words
