"""Anthropic's client for Python: `python anthropic_client.py SCENARIO whole|stream`; what it heard, as JSON."""

import json
import sys

import anthropic

SCENARIO, STREAM = sys.argv[1], sys.argv[2] == "stream"
CACHED = {"cache_control": {"type": "ephemeral"}}
SCHEMA = {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]}
TOOL = {"name": "look", "description": "Look into a box.", "input_schema": SCHEMA} | CACHED
FIELDS = {
    "extra_body": {"temperature": 0.2, "top_k": 5},
    "metadata": {"user_id": "somebody"},
    "service_tier": "auto",
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}
"""Fields that clients send besides, none of which is honoured."""
client = anthropic.Anthropic(max_retries=0 if SCENARIO == "abort" else 2)


def user_turn(text: str) -> list:
    return [{"role": "user", "content": [{"type": "text", "text": text} | CACHED]}]


def ask(messages: list, **given: object) -> anthropic.types.Message:
    system = [{"type": "text", "text": "Be brief."} | CACHED]
    given = {"model": "any", "max_tokens": 2000, "system": system, "messages": messages} | given
    if not STREAM:
        return client.messages.create(**given)
    with client.messages.stream(**given) as stream:
        return stream.get_final_message()


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def tools() -> dict:
    given = {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}} | FIELDS
    messages = user_turn("What is in the red box?")
    first = ask(messages, **given)
    (use,) = [block for block in first.content if block.type == "tool_use"]
    found = [{"type": "text", "text": f"a coin in the {use.input['box']} box"}]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": found} | CACHED
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = ask(messages, **given)
    return {"tool": use.name, "finish": first.stop_reason, "answer": text_of(second)}


def runner() -> dict:
    @anthropic.beta_tool
    def look(box: str) -> str:
        """Look into a box."""
        return f"a coin in the {box} box"

    given = {"model": "any", "max_tokens": 99, "messages": user_turn("What is in the red box?")}
    if STREAM:
        for stream in client.beta.messages.tool_runner(**given, tools=[look], stream=True):
            last = stream.get_final_message()
    else:
        last = client.beta.messages.tool_runner(**given, tools=[look]).until_done()
    return {"answer": text_of(last)}


def stop() -> dict:
    told = ask(user_turn("Count."), stop_sequences=[" four", "five"])
    return {
        "answer": text_of(told),
        "finish": told.stop_reason,
        "found": told.stop_sequence,
        "sampled": told.usage.output_tokens,
    }


def long() -> dict:
    try:
        ask(user_turn("many words " * 4000))
    except anthropic.BadRequestError as error:
        told = error.body["error"]
        return {"error": type(error).__name__, "code": told["type"], "message": told["message"]}
    return {}


def abort() -> dict:
    """It goes away behind the first word, or where the whole answer does not come in time."""
    heard, messages = "", user_turn("Count.")
    if STREAM:
        with client.messages.stream(model="any", max_tokens=99, messages=messages) as stream:
            heard = next(iter(stream.text_stream))
    else:
        try:
            ask(messages, timeout=1.5, system=anthropic.omit)
        except anthropic.APITimeoutError as error:
            heard = type(error).__name__
    return {"heard": heard, "answer": text_of(ask(messages, system=anthropic.omit))}


def retry() -> dict:
    messages = user_turn("What is in it?")
    first = ask(messages)
    history = [*messages, {"role": "assistant", "content": first.content}, *user_turn("Sure?")]
    return {"answer": text_of(first), "again": text_of(ask(history))}


sys.stdout.write(json.dumps(globals()[SCENARIO]()))
