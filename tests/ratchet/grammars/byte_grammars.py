"""Grammars for the tokenizer of the tiny models."""

from __future__ import annotations

from demos.toy.byte_tokenizer import VOCABULARY, byte_tokenizer
from ratchet.grammars.masks import Grammars


def byte_grammars() -> Grammars:
    tokenizer = byte_tokenizer(512)
    return Grammars(tokenizer, VOCABULARY, {tokenizer.eos_token_id})
