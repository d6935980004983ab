"""SmolLM2-135M-Instruct as `ratchet models fetch smollm2` has it: its tokenizer here, its weights in `on_a_model`."""

from __future__ import annotations

from ratchet.conversation.template import ChatTemplate
from ratchet.models.known import known_folder
from ratchet.models.tokenization import chat_template, load_tokenizer
from tests.ratchet.conversation.speakers import source_of

NAME = "smollm2"
CONTEXT = 8192
VOCABULARY = 49_152


def spoken(source: str = NAME) -> ChatTemplate:
    """The model's tokenizer with its own template, or that of another model: its own writes no tools.

    Raises EngineError where it was not fetched.
    """
    tokenizer = load_tokenizer(known_folder(NAME))
    if source != NAME:
        tokenizer.chat_template = source_of(source)
    found = chat_template(tokenizer, {tokenizer.eos_token_id})
    assert found is not None
    return found
