"""What is told while tokens come is what all of them say, whatever the tokenizer, at the same cost for each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ratchet.conversation.stops import UNFINISHED, Decoding
from tests.quick import rounds
from tests.ratchet.conversation.speakers import template

Text = Callable[[Sequence[int]], str]
SAID = "Grüße, 世界! 👩‍🚀 said <|im_end|> \ufffd twice.\n\n  def f(x):\n\treturn x"


def with_word_starts() -> Text:
    """As Llama 2's: a space before the first word, which is not told."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    bytes_ = [f"<0x{number:02X}>" for number in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", *bytes_], show_progress=False)
    tokenizer.train_from_iterator(["the quick brown fox says hello to the lazy dog in the box"], trainer)
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=False)


FIRST_WORD = 257
"""Before it are single bytes, of which that decoder takes back what came before one that fits no character."""
TEXTS: dict[str, Text] = {"bytes": template("qwen2_5").text, "words": with_word_starts()}


@pytest.mark.parametrize(("name", "first"), [("bytes", 0), ("words", FIRST_WORD)])
@settings(max_examples=rounds(300), deadline=None)
@given(drawn=st.lists(st.integers(0, 599), max_size=60))
def test_after_each_token_the_text_is_that_of_all_of_them(name: str, first: int, drawn: list[int]) -> None:
    text_of, ids = TEXTS[name], [max(first, one) for one in drawn]
    decoding, told = Decoding(text_of), ""

    for count, token in enumerate(ids, 1):
        text = decoding.add(token)
        whole = text_of(ids[:count])
        assert text.rstrip(UNFINISHED) == whole.rstrip(UNFINISHED)
        assert text.startswith(told)
        told = text.rstrip(UNFINISHED)


@pytest.mark.parametrize(("name", "first"), [("bytes", 0), ("words", FIRST_WORD)])
@settings(max_examples=rounds(100), deadline=None)
@given(drawn=st.lists(st.lists(st.integers(0, 599), min_size=1, max_size=9), max_size=12))
def test_tokens_that_come_together_are_told_as_one_by_one(name: str, first: int, drawn: list[list[int]]) -> None:
    text_of, batches = TEXTS[name], [[max(first, one) for one in batch] for batch in drawn]
    decoding, ids, told = Decoding(text_of), list[int](), ""

    for batch in batches:
        text, ids = decoding.add(*batch), [*ids, *batch]
        assert (decoding.count, text.rstrip(UNFINISHED)) == (len(ids), text_of(ids).rstrip(UNFINISHED))
        assert text.startswith(told)
        told = text.rstrip(UNFINISHED)


def test_text_that_was_encoded_comes_back_token_by_token() -> None:
    ids = template("qwen2_5").codec.encode(SAID, plain=True)
    decoding = Decoding(template("qwen2_5").text)

    assert [decoding.add(token) for token in ids][-1] == SAID


def test_a_token_costs_what_the_first_one_did() -> None:
    decoded: list[int] = []

    def counting(ids: Sequence[int]) -> str:
        decoded.append(len(ids))
        return template("qwen2_5").text(ids)

    decoding = Decoding(counting)
    for _ in range(40):
        for token in template("qwen2_5").codec.encode(SAID, plain=True):
            decoding.add(token)

    assert max(decoded) < 20
