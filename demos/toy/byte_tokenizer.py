"""A tokenizer without training: one token a byte, and five control tokens. Any text goes through it unharmed."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

PAD, END, SYSTEM, USER, ASSISTANT = "<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"
CONTROL = (PAD, END, SYSTEM, USER, ASSISTANT)
VOCABULARY = 256 + len(CONTROL)

ROLE = f"""\
{{%- if message.role == 'system' -%}}{SYSTEM}
{{%- elif message.role == 'user' -%}}{USER}
{{%- else -%}}{ASSISTANT}
{{%- endif -%}}"""
CHAT_TEMPLATE = f"""\
{{%- for message in messages -%}}
{ROLE}{{{{- message.content -}}}}{END}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{ASSISTANT}{{%- endif -%}}"""


def byte_tokenizer(max_length: int) -> PreTrainedTokenizerFast:
    """Ids 0–255 are bytes in the order of the byte-level alphabet, 256–260 the control tokens."""
    return chat_tokenizer((), CONTROL, (), CHAT_TEMPLATE, max_length)


def chat_tokenizer(
    pairs: Sequence[str], control: Sequence[str], pieces: Sequence[str], template: str, max_length: int
) -> PreTrainedTokenizerFast:
    """A token each, in this order: bytes, pairs of two letters, control tokens (the first two pad and end), pieces."""
    vocabulary = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {pair: len(vocabulary) + index for index, pair in enumerate(pairs)}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[(pair[0], pair[1]) for pair in pairs]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in pieces])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=control[0],
        eos_token=control[1],
        chat_template=template,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
