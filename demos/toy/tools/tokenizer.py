"""The tool model's tokenizer and chat template: bytes, two-digit numbers, and each piece of a tool call as one token.

The template is of Hermes' kind, for any tools and calls. What it writes of the three tools of the task is a token a
piece, so that a whole call is three to five tokens; any other text goes through as bytes, unharmed.
"""

from __future__ import annotations

from transformers import PreTrainedTokenizerFast

from demos.toy import byte_tokenizer
from demos.toy.byte_tokenizer import ASSISTANT, END, SYSTEM, USER, chat_tokenizer

TOOL = "<|tool|>"
CONTROL = (*byte_tokenizer.CONTROL, TOOL)
READ = '<tool_call>{"name": "read_file", "arguments": {"path": "'
WRITE = '<tool_call>{"name": "write_file", "arguments": {"path": "'
ADD = '<tool_call>{"name": "add", "arguments": {"a": '
CONTENT, AND = '", "content": "', ', "b": '
TEXT_CALLED, CALLED = '"}}</tool_call>', "}}</tool_call>"
OFFERED = tuple(f"<tool>{name}</tool>" for name in ("read_file", "add", "write_file"))
PIECES = (READ, WRITE, ADD, CONTENT, AND, TEXT_CALLED, CALLED, *OFFERED)
NUMBERS = tuple(str(number) for number in range(10, 100))
VOCABULARY = 256 + len(NUMBERS) + len(CONTROL) + len(PIECES)

CHAT_TEMPLATE = f"""\
{{%- for tool in tools or [] -%}}<tool>{{{{- tool.function.name -}}}}</tool>{{%- endfor -%}}
{{%- for message in messages -%}}
{{%- if message.role == 'system' -%}}{SYSTEM}
{{%- elif message.role == 'user' -%}}{USER}
{{%- elif message.role == 'tool' -%}}{TOOL}
{{%- else -%}}{ASSISTANT}
{{%- endif -%}}
{{{{- message.content or '' -}}}}
{{%- for call in message.tool_calls or [] -%}}
{{%- set called = call.function -%}}
<tool_call>{{"name": "{{{{- called.name -}}}}", "arguments": {{{{ called.arguments | tojson -}}}}}}</tool_call>
{{%- endfor -%}}
{END}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{ASSISTANT}{{%- endif -%}}"""


def tool_tokenizer(max_length: int) -> PreTrainedTokenizerFast:
    """Ids 0–255 are bytes, then come the numbers 10 to 99, the control tokens, and the pieces of tool calls."""
    return chat_tokenizer(NUMBERS, CONTROL, PIECES, CHAT_TEMPLATE, max_length)
