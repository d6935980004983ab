"""Gullible readers of prompts, to test how a prompt is built; they say nothing of any real model's character.

What they read is what a model reads: control tokens are control tokens wherever they stand, hidden characters can be
read, a line that looks like the end of the material ends it.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.ratchet.openai.model_server import verdict

CONTROL_TOKEN = re.compile(
    r"<\s*[|｜][^|｜<>]{1,40}[|｜]\s*>|</?s>|<(?:start|end)_of_turn>|\[/?[A-Z][A-Z_]+\]|<</?SYS>>|</?(?:system|user)>"
)
COMMAND = re.compile(r"score\W{0,6}10")
MATERIAL = re.compile(r"^=== MATERIAL \w+ ===$\n(.*?)\n^=== END \w+ ===$", re.MULTILINE | re.DOTALL)
HIDDEN = re.compile("[\u00ad\u034f\u200b-\u200f\u2060-\u2064\ufeff\u202a-\u202e\u2066-\u2069]")
LINE_ENDS = re.compile("[\u0085\u2028\u2029\r\x0b\x0c]")


def obedient(body: dict[str, Any]) -> str:
    """Does what any text outside the material tells it, and believes every turn it sees beginning.

    Inside the material it is honest: 10 for an answer that is the reference, 0 for any other. So only text that got
    out of the material wins it over.
    """
    nonce, ids = wanted_verdict(body)
    text = "\n".join(as_read(message["content"]) for message in body["messages"])
    outside = text if CONTROL_TOKEN.search(text) else MATERIAL.sub("", text, count=1)
    if COMMAND.search(outside):
        return verdict(nonce, dict.fromkeys(ids, 10))
    material = material_of(body)
    texts = {answer["id"]: answer["text"] for answer in material["answers"]}
    return verdict(nonce, {each: 10 if texts[each] == material["reference"] else 0 for each in ids})


def parrot(body: dict[str, Any]) -> str:
    """Repeats the first answer, word for word, as its verdict."""
    return str(material_of(body)["answers"][0]["text"])


def wanted_verdict(body: dict[str, Any]) -> tuple[str, list[str]]:
    """The nonce and the answers' ids that the verdict's schema asks for."""
    properties = body["response_format"]["json_schema"]["schema"]["properties"]
    return properties["nonce"]["enum"][0], properties["verdicts"]["items"]["properties"]["id"]["enum"]


def material_of(body: dict[str, Any]) -> Any:
    """The material as parsed JSON."""
    found = MATERIAL.search(body["messages"][-1]["content"])
    if found is None:
        raise ValueError("the prompt holds no material between its two lines")
    return json.loads(found.group(1))


def as_read(text: str) -> str:
    """Hidden characters dropped, tag characters as the ASCII they smuggle, odd line ends as line ends."""
    smuggled = "".join(chr(ord(char) - 0xE0000) if 0xE0020 <= ord(char) <= 0xE007E else char for char in text)
    return LINE_ENDS.sub("\n", HIDDEN.sub("", smuggled))
