"""Renders the text between a sampled answer and the next one: the difference of two renderings of a template.

The answer's ids go to the engine again as they are, and only what came after it is rendered and encoded: the end of the
turn where it was not sampled, the separator, new messages, the start of the next answer. That is right only where the
template writes the past with the new messages as it wrote it without them (it renders monotonically). Where it does
not, as with templates that drop the reasoning of earlier turns, the bridge is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ratchet.conversation.messages import Message
from ratchet.conversation.template import ChatTemplate, Tools
from ratchet.service.errors import PromptRefused, RatchetError


class BridgeRefused(RatchetError):
    """The template writes this history otherwise than it was sampled, so the whole of it has to be encoded again."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The messages asked, the message that answered, and the sampled text without the token that ended it.

    `ended`: there was such a token; without one it was cut off.
    """

    asked: Sequence[Message]
    answer: Message
    sampled: str
    ended: bool

    @property
    def messages(self) -> list[Message]:
        return [*self.asked, self.answer]


def bridge(template: ChatTemplate, recorded: Recorded, added: Sequence[Message], tools: Tools = ()) -> str:
    """The rendered text from the end of what was sampled to the start of the next answer.

    Raises BridgeRefused, and PromptRefused where the template does not take the messages at all.
    """
    return bridge_text(template, recorded, added, tools)[0]


def bridge_text(
    template: ChatTemplate, recorded: Recorded, added: Sequence[Message], tools: Tools = (), before: str | None = None
) -> tuple[str, str]:
    """The same, and the text of all the messages. `before`: that of what was asked, if it is known; it is rendered
    anew where it is not how the text begins, as with a template that writes the date."""
    whole = template.render([*recorded.messages, *added], tools, ask=True)
    if before is None or not whole.startswith(before):
        before = template.render(recorded.asked, tools, ask=True)
    if not whole.startswith(before):
        raise BridgeRefused("the template writes earlier turns otherwise once there are further messages")
    end = template.end_of_turn(whole, len(before))
    if end is None:
        raise BridgeRefused("the template does not write the token that ends an answer")
    turn = whole[len(before) : end[0]]
    if template.remove_marks(turn) != recorded.sampled and not _same_when_last(template, recorded, tools, before, turn):
        raise BridgeRefused("the template writes an answer otherwise once there are further messages")
    return whole[end[1] if recorded.ended else end[0] :], whole


def _same_when_last(template: ChatTemplate, recorded: Recorded, tools: Tools, before: str, turn: str) -> bool:
    """Return whether the template writes the answer that way too where nothing follows it."""
    alone = template.render(recorded.messages, tools, ask=False)
    if not alone.startswith(before):
        return False
    end = template.end_of_turn(alone, len(before))
    return end is not None and alone[len(before) : end[0]] == turn


ASKED: Message = {"role": "user", "content": "What is in it?"}
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look into a box.",
        "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    },
}
_CALL = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": '{"box": "red"}'}}
_RESULT: Message = {"role": "tool", "content": "a coin", "tool_call_id": "call00001", "name": "look"}
_TRIED: tuple[tuple[str, Message, Message], ...] = (
    ("a further question", {"role": "assistant", "content": "A coin."}, {"role": "user", "content": "Sure?"}),
    ("a tool's result", {"role": "assistant", "content": "", "tool_calls": [_CALL]}, _RESULT),
    (
        "a further question to an answer with reasoning",
        {"role": "assistant", "content": "A coin.", "reasoning_content": "It rattles."},
        {"role": "user", "content": "Sure?"},
    ),
    (
        "a tool's result after reasoning",
        {"role": "assistant", "content": "", "reasoning_content": "I can't see it.", "tool_calls": [_CALL]},
        _RESULT,
    ),
)


def limits_of(template: ChatTemplate, *, tools: bool | None = None) -> list[str]:
    """Return what of conversations this template can't bridge, each as a sentence with its consequence.

    It is asked at the start: each kind of turn is tried on the template itself. `tools`: of conversations with tools
    alone, or without.
    """
    limits = _limits(template)
    return [limit for with_tools, limit in limits if tools in (None, with_tools)]


def _limits(template: ChatTemplate) -> list[tuple[bool, str]]:
    """Each with whether it is about tools."""
    found = []
    for what, answer, following in _TRIED:
        tools = [TOOL] if "tool_calls" in answer else []
        try:
            bridge(template, _as_written(template, answer, tools), [following], tools)
        except BridgeRefused as refused:
            found.append(
                (bool(tools), f"{what}: {refused}; each such turn begins a new segment, whose past is encoded again")
            )
        except PromptRefused as refused:
            found.append((bool(tools), f"{what}: {refused}; such a request is refused"))
    if not _tells_of_tools(template):
        found.append((True, "tools: the template does not write them, so a model is not told which there are"))
    return found


def _as_written(template: ChatTemplate, answer: Message, tools: Tools) -> Recorded:
    """The answer as if the model had sampled what the template writes; plain text as it is."""
    recorded = Recorded([ASKED], answer, answer["content"], ended=True)
    if not ("tool_calls" in answer or "reasoning_content" in answer):
        return recorded
    before = template.render(recorded.asked, tools, ask=True)
    alone = template.render(recorded.messages, tools, ask=False)
    end = template.end_of_turn(alone, len(before))
    if end is None or not alone.startswith(before):
        return recorded
    return Recorded([ASKED], answer, template.remove_marks(alone[len(before) : end[0]]), ended=True)


def _tells_of_tools(template: ChatTemplate) -> bool:
    try:
        return template.render([ASKED], [TOOL], ask=True) != template.render([ASKED], ask=True)
    except PromptRefused:
        return False
