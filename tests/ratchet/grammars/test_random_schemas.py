"""Whatever a random walk writes under a schema's masks is valid, by another library, once the grammar lets it end."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema_rs
from hypothesis import given, note, settings
from hypothesis import strategies as st

from demos.toy.byte_tokenizer import VOCABULARY, byte_tokenizer
from ratchet.grammars.grammar import grammar_for
from ratchet.grammars.masks import fill_masks, free_masks, unpack_masks
from schemas.messages.task import AnswerFormat
from tests.ratchet.grammars.byte_grammars import byte_grammars

TOKENIZER = byte_tokenizer(512)
GRAMMARS = byte_grammars()
MOST_TOKENS = 400
Schema = dict[str, Any]

NAMES = st.sampled_from(("a", "b", "long name", "ü"))
SIMPLE: st.SearchStrategy[Schema] = st.one_of(
    st.lists(st.sampled_from(("x", "a longer one", 'with "quotes"', 3, None, True)), min_size=1, unique_by=repr).map(
        lambda values: {"enum": values}
    ),
    st.integers(-50, 50).flatmap(
        lambda low: st.integers(low, low + 99).map(lambda high: {"type": "integer", "minimum": low, "maximum": high})
    ),
    st.integers(0, 4).map(lambda longest: {"type": "string", "maxLength": longest}),
    st.just({"type": "number", "minimum": -1, "maximum": 1}),
    st.sampled_from(({"type": "boolean"}, {"type": "null"}, {"$ref": "#/$defs/word"})),
)


def objects(fields: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    named = st.dictionaries(NAMES, fields, max_size=3)
    return named.flatmap(
        lambda properties: st.sets(st.sampled_from(sorted(properties)) if properties else st.nothing()).map(
            lambda needed: {
                "type": "object",
                "properties": properties,
                "required": sorted(needed),
                "additionalProperties": False,
            }
        )
    )


def larger(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    lists = st.tuples(inner, st.integers(0, 3)).map(lambda of: {"type": "array", "items": of[0], "maxItems": of[1]})
    return st.one_of(
        objects(inner), lists, st.lists(inner, min_size=1, max_size=3).map(lambda any_of: {"anyOf": any_of})
    )


def written(text: str, random: Random) -> str | None:
    """Return what a walk over the allowed tokens writes; None where it has not ended after as many as there may be."""
    row, ids = GRAMMARS.begin(text), list[int]()
    while len(ids) < MOST_TOKENS:
        masks = free_masks(1, VOCABULARY)
        assert not fill_masks([row], masks)
        token = random.choice(unpack_masks(masks, VOCABULARY)[0].nonzero()[0].tolist())
        if token == TOKENIZER.eos_token_id:
            return str(TOKENIZER.decode(ids))
        ids.append(token)
        row.take(token)
    return None


@settings(deadline=None)
@given(schema=st.recursive(SIMPLE, larger, max_leaves=6), random=st.randoms(use_true_random=False))
def test_an_answer_that_ends_under_its_schema_is_valid(schema: Schema, random: Random) -> None:
    whole = schema | {"$defs": {"word": {"enum": ["red", "green"]}}}
    text = grammar_for(AnswerFormat(type="json_schema", json_schema=whole)).text

    if (answer := written(text, random)) is not None:
        note(answer)
        assert jsonschema_rs.is_valid(whole, json.loads(answer))
