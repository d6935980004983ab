"""Prompts to token ids and back, through the tokenizer and chat template of a model (folder or hub name). No weights.

Shared by whatever puts tasks to a model: the agent's engines, the scorer's likelihood.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from ratchet.conversation.template import ChatTemplate
from ratchet.service.errors import PromptRefused
from schemas.messages.task import ChatMessage, Prompt, Tool


def keep_torch_out() -> None:
    """To be called before transformers is imported: it goes on as where no torch is installed, and says nothing of
    that."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # this is how Python is told that there is none
    logging.getLogger("transformers").addFilter(lambda told: "PyTorch was not found" not in told.getMessage())


def load_tokenizer(folder: Path) -> Any:
    """A transformers tokenizer that pads on the left, as generation needs, and has a padding token."""
    from transformers import AutoTokenizer  # not above: `keep_torch_out` comes before it

    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def chat_messages(prompt: Prompt) -> tuple[ChatMessage, ...]:
    """Text is one user message; chat messages are taken as they are."""
    return (ChatMessage(role="user", content=prompt),) if isinstance(prompt, str) else prompt


def prompt_ids(tokenizer: Any, prompt: Prompt, tools: Sequence[Tool] = ()) -> list[int]:
    """Token ids of a prompt, ready for the model to answer.

    Control tokens are only those the template writes: `<|im_end|>` typed by a user is encoded as text. Without a chat
    template a text is encoded as it is, chat messages as "role: content" lines that end in "assistant:".

    Raises PromptRefused for what the template does not take, and for tools where it writes none.
    """
    if tools or any(message.tool_calls or message.role == "tool" for message in chat_messages(prompt)):
        return _ids_with_tools(tokenizer, chat_messages(prompt), tools)
    if tokenizer.chat_template is None:
        return list(tokenizer.encode(_plain(prompt), split_special_tokens=True))
    messages = [message.model_dump() for message in chat_messages(prompt)]
    try:
        ids: list[int] = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False, sanitize_control_tokens=True
        )
    except (TemplateError, KeyError, TypeError, ValueError) as error:
        raise PromptRefused(f"the model's chat template does not take these messages: {error}") from error
    return ids


def _ids_with_tools(tokenizer: Any, prompt: Sequence[ChatMessage], tools: Sequence[Tool]) -> list[int]:
    template = chat_template(tokenizer, {tokenizer.eos_token_id})
    if template is None:
        raise PromptRefused("the model has no chat template, so it can't be told of tools and what they bring")
    messages = [message.model_dump() for message in prompt]
    offered = [tool.model_dump() for tool in tools]
    written = template.render(messages, offered, ask=True)
    if offered and written == template.render(messages, ask=True):
        raise PromptRefused("the model's chat template writes no tools, so the model can't be told of them")
    return template.encode(written)


def answer_encoder(tokenizer: Any, end_ids: Collection[int]) -> Callable[[str], list[int]]:
    """Gives the tokens of an answer as its model would have sampled them, the token that ends it included.

    As the chat template writes an assistant's turn; without one, or where it writes turns in another way than it asks
    for them, the text as it is. The encoder raises PromptRefused where the template does not take an answer.
    """
    template = chat_template(tokenizer, end_ids)
    asked = [{"role": "user", "content": "?"}]
    begun = template.render(asked, ask=True) if template else ""

    def encode(text: str) -> list[int]:
        if template is not None:
            whole = template.render([*asked, {"role": "assistant", "content": text}], ask=False)
            turn = template.end_of_turn(whole, len(begun)) if whole.startswith(begun) else None
            if turn is not None:
                return template.encode(whole[len(begun) : turn[1]], first=False)
        return [*tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True), tokenizer.eos_token_id]

    return encode


def token_texts(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Decode each token by itself; where it is a part of a character, a replacement stands for it."""
    return tuple(str(tokenizer.decode([one], clean_up_tokenization_spaces=False)) for one in ids)


def _plain(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join([*(f"{message.role}: {message.content}" for message in prompt), "assistant:"])


def completion_text(tokenizer: Any, ids: list[int]) -> str:
    """The text of sampled tokens, without control tokens."""
    return str(tokenizer.decode(ids, skip_special_tokens=True))


class TokenizerCodec:
    """A transformers tokenizer as a chat template needs it."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._added = frozenset(tokenizer.added_tokens_decoder)

    def encode(self, text: str, *, plain: bool = False) -> list[int]:
        """Raises PromptRefused where the tokenizer makes a control token of plain text all the same."""
        ids = list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=plain))
        if plain and (control := self._added.intersection(ids)):
            raise PromptRefused(f"the tokenizer makes control token {min(control)} of the text {text.strip()!r}")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


class ConcurrentCodec(TokenizerCodec):
    """The same for several threads at once, none of which holds the others up: nothing is set on a tokenizer that
    another thread may be in, and it encodes without Python's lock. Control tokens alone are encoded as plain text."""

    def __init__(self, tokenizer: Any, control: Collection[str]) -> None:
        super().__init__(tokenizer)
        self._plain = {text: self._plain_ids(text) for one in control for text in (one, f"\n{one}")}
        super().encode("")
        self._backend = tokenizer.backend_tokenizer

    def _plain_ids(self, text: str) -> list[int] | PromptRefused:
        try:
            return super().encode(text, plain=True)
        except PromptRefused as error:
            return error

    def encode(self, text: str, *, plain: bool = False) -> list[int]:
        if not plain:
            return list(self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        ids = self._plain[text]
        if isinstance(ids, PromptRefused):
            raise ids
        return ids


def template_of(folder: Path) -> ChatTemplate | None:
    """Return the chat template of the model in a folder, or None if it has none."""
    tokenizer = load_tokenizer(folder)
    codec = ConcurrentCodec if hasattr(tokenizer, "backend_tokenizer") else None
    return chat_template(tokenizer, _end_ids(folder, tokenizer), codec)


def answers_of(folder: Path) -> tuple[Callable[[str], list[int]], int]:
    """Return an encoder of answers by the model in a folder, as `answer_encoder`, and how many tokens it holds.

    The number covers prompt and answer together.
    """
    tokenizer = load_tokenizer(folder)
    longest = json.loads((folder / "config.json").read_bytes()).get("max_position_embeddings")
    return answer_encoder(tokenizer, _end_ids(folder, tokenizer)), int(longest or tokenizer.model_max_length)


def _end_ids(folder: Path, tokenizer: Any) -> frozenset[int]:
    file = folder / "generation_config.json"
    ends = json.loads(file.read_bytes()).get("eos_token_id") if file.is_file() else None
    listed = ends if isinstance(ends, list) else [ends]
    return frozenset(token for token in (*listed, tokenizer.eos_token_id) if token is not None)


def chat_template(
    tokenizer: Any, end_ids: Collection[int], codec: Callable[[Any, Collection[str]], TokenizerCodec] | None = None
) -> ChatTemplate | None:
    """The tokenizer's, for conversations; None if it has none. `end_ids`: the model's, each of which ends an answer.
    `codec`: made of the tokenizer and its control tokens."""
    source = tokenizer.chat_template
    if source is None:
        return None
    added = tokenizer.added_tokens_decoder.values()
    control = [
        token.content for token in added if token.special or (token.content in source and not token.content.isspace())
    ]
    return ChatTemplate(
        source,
        codec(tokenizer, control) if codec else TokenizerCodec(tokenizer),
        control=control,
        ends={token: tokenizer.convert_ids_to_tokens(token) for token in end_ids},
        variables=tokenizer.special_tokens_map,
    )
