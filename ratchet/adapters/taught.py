"""Prompts that demonstrations may not teach, and those that no training may see.

The gate asks a candidate the tasks of `golden.jsonl`, or the first tasks of the agent's users, which `anchors.jsonl`
has: an adapter that was shown their answers would pass by heart.

A share of the prompts is kept for the shadow replay of candidates: `is_kept` decides by the prompt's words, whatever
their order, case and punctuation, so what is nearly the same is kept, or not, together. A prompt that differs in one
word is another.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from functools import lru_cache
from pathlib import Path

import msgspec

from ratchet.adapters.evaluations import input_sha256
from ratchet.files.append_file import disk_errors
from ratchet.service.errors import AdapterError
from schemas.messages.base import DecodeError
from schemas.messages.task import Prompt, Task

GOLDEN, ANCHORS = "golden.jsonl", "anchors.jsonl"
WORD = re.compile(r"\w+")
LARGEST_KEY = 1 << 64


def asked_by_the_gate(adapters_dir: Path, agent_id: str) -> frozenset[str]:
    """The sums of the inputs of an agent's golden tasks and anchors.

    Raises AdapterError naming a file that can't be read, and StorageUnavailable.
    """
    home = adapters_dir / agent_id
    golden = (line for line in _lines(home / GOLDEN))
    anchors = (b64decode(json.loads(line)["task"]) for line in _lines(home / ANCHORS))
    try:
        return frozenset(input_sha256(Task.decode(task).input) for task in (*golden, *anchors))
    except (DecodeError, ValueError, KeyError) as error:
        raise AdapterError(f"the golden tasks or anchors in {home} can't be read: {error}; mend them") from error


def words_key(prompt: Prompt) -> int:
    """Return a number below LARGEST_KEY that is the same for prompts of the same words."""
    return _key_of(prompt if isinstance(prompt, str) else "\n".join(one.content for one in prompt))


@lru_cache(maxsize=1)
def logged_words_key(raw: bytes) -> int:
    """Return the same for the field `input` of a log line. The lines of a group follow each other with one prompt."""
    try:
        found = msgspec.json.decode(raw)
        return _key_of(found if isinstance(found, str) else "\n".join(one["content"] for one in found))
    except (msgspec.DecodeError, KeyError, TypeError):
        return _key_of(raw.decode("utf-8", "replace"))


def is_kept(key: int, share: float) -> bool:
    """True for a prompt in the share of all prompts that is kept for the replay."""
    return key < share * LARGEST_KEY


def _key_of(text: str) -> int:
    words = sorted(set(WORD.findall(text.casefold()))) or text.split()
    text = " ".join(words)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _lines(path: Path) -> list[bytes]:
    """None where there is no file."""
    with disk_errors(path):
        return [line for line in path.read_bytes().splitlines() if line.strip()] if path.exists() else []
