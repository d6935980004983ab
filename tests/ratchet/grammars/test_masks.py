"""What a grammar allows next, and the same masks again over what was sampled."""

from __future__ import annotations

import pytest

from demos.toy.byte_tokenizer import END, VOCABULARY, byte_tokenizer
from ratchet.grammars.grammar import grammar_for
from ratchet.grammars.masks import FREE, Grammars, fill_masks, free_masks, unpack_masks
from ratchet.service.errors import PromptRefused
from schemas.messages.task import AnswerFormat
from tests.ratchet.grammars.byte_grammars import byte_grammars

TEXT = grammar_for(AnswerFormat(type="json_schema", json_schema={"enum": ["yes", "no"]})).text
TOKENIZER = byte_tokenizer(512)


@pytest.fixture
def grammars() -> Grammars:
    return byte_grammars()


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False))


def allowed(grammars: Grammars, *before: str) -> set[str]:
    row, masks = grammars.begin(TEXT, ids_of("".join(before))), free_masks(1, VOCABULARY)
    assert not fill_masks([row], masks)
    return {
        TOKENIZER.convert_ids_to_tokens(token) for token in unpack_masks(masks, VOCABULARY)[0].nonzero()[0].tolist()
    }


def test_only_what_goes_on_as_the_grammar_says_is_allowed(grammars: Grammars) -> None:
    assert allowed(grammars) == {'"'}
    assert allowed(grammars, '"') == {"y", "n"}
    assert allowed(grammars, '"no"') == {END}


def test_masks_are_replayed_and_end_where_the_log_leaves_the_grammar(grammars: Grammars) -> None:
    whole, wrong = [*ids_of('"yes"'), TOKENIZER.eos_token_id], ids_of('"yet"')
    masks, masks_of_wrong = free_masks(6, VOCABULARY), free_masks(5, VOCABULARY)

    grammars.replay(TEXT, whole, masks)
    grammars.replay(TEXT, wrong, masks_of_wrong)

    assert unpack_masks(masks, VOCABULARY).sum(1).tolist() == [1, 2, 1, 1, 1, 1]
    assert (masks_of_wrong[:3] == masks[:3]).all()
    assert (masks_of_wrong[3:] == FREE).all()


def test_what_is_no_grammar_or_no_beginning_is_refused(grammars: Grammars) -> None:
    with pytest.raises(PromptRefused, match="can't be compiled"):
        grammars.begin("start: nothing")
    with pytest.raises(PromptRefused, match="no beginning"):
        grammars.begin(TEXT, ids_of("maybe"))
