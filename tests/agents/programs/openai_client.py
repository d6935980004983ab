"""OpenAI's client for Python: `python openai_client.py SCENARIO whole|stream`; what it heard, as JSON."""

import json
import sys

import openai

SCENARIO, STREAM = sys.argv[1], sys.argv[2] == "stream"
PARAMETERS = {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]}
FUNCTION = {"name": "look", "description": "Look into a box.", "parameters": PARAMETERS, "strict": True}
FIELDS = {
    "temperature": 0.2,
    "top_p": 0.9,
    "parallel_tool_calls": True,
    "reasoning_effort": "low",
    "store": False,
    "metadata": {"of": "a test"},
    "user": "somebody",
    "safety_identifier": "somebody",
    "prompt_cache_key": "one",
    "service_tier": "auto",
    "verbosity": "low",
}
"""Fields that clients send besides, none of which is honoured."""
client = openai.OpenAI(max_retries=0 if SCENARIO == "abort" else 2)


def user_turn(text: str) -> list:
    system = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    return [system, {"role": "user", "content": [{"type": "text", "text": text}]}]


def ask(messages: list, **given: object) -> dict:
    given = {"model": "any", "messages": messages} | given
    if not STREAM:
        completion = client.chat.completions.create(**given)
    else:
        with client.chat.completions.stream(stream_options={"include_usage": True}, **given) as stream:
            completion = stream.get_final_completion()
    (choice,) = completion.choices
    told = choice.message.model_dump(mode="json", exclude_none=True)
    told.pop("parsed", None)
    return {"message": told, "finish": choice.finish_reason, "sampled": completion.usage.completion_tokens}


def tools() -> dict:
    offered = [{"type": "function", "function": FUNCTION}]
    messages = user_turn("What is in the red box?")
    first = ask(messages, tools=offered, tool_choice="auto", **FIELDS)
    (call,) = first["message"]["tool_calls"]
    box = json.loads(call["function"]["arguments"])["box"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": f"a coin in the {box} box"}
    messages += [first["message"], result]
    second = ask(messages, tools=offered, tool_choice="auto", **FIELDS)
    return {"tool": call["function"]["name"], "finish": first["finish"], "answer": second["message"]["content"]}


def respond() -> dict:
    def ask(items: list) -> object:
        given = {
            "model": "any",
            "instructions": "Be brief.",
            "input": items,
            "tools": [{"type": "function"} | FUNCTION],
        }
        given |= {"reasoning": {"effort": "low"}, "include": ["reasoning.encrypted_content"], "store": False}
        given |= {"metadata": {"of": "a test"}, "service_tier": "auto", "parallel_tool_calls": True, "user": "somebody"}
        if not STREAM:
            return client.responses.create(**given)
        with client.responses.stream(**given) as stream:
            return stream.get_final_response()

    items = [{"role": "user", "content": [{"type": "input_text", "text": "What is in the red box?"}]}]
    first = ask(items)
    (call,) = [item for item in first.output if item.type == "function_call"]
    items += [item.model_dump(mode="json", exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    for item in items:
        for part in item["content"] if isinstance(item.get("content"), list) else ():
            part.pop("parsed", None)
    box = json.loads(call.arguments)["box"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": f"a coin in the {box} box"}
    second = ask([*items, output])
    return {"tool": call.name, "answer": second.output_text}


def stop() -> dict:
    told = ask(user_turn("Count."), stop=[" four", "five"])
    return {"answer": told["message"]["content"], "finish": told["finish"], "sampled": told["sampled"]}


def long() -> dict:
    try:
        ask(user_turn("many words " * 4000))
    except openai.BadRequestError as error:
        return {"error": type(error).__name__, "code": error.code, "message": error.message}
    return {}


def abort() -> dict:
    """It goes away behind the first word, or where the whole answer does not come in time."""
    heard, messages = "", user_turn("Count.")
    if STREAM:
        with client.chat.completions.create(model="any", messages=messages, stream=True) as stream:
            heard = next(text for chunk in stream if (text := chunk.choices[0].delta.content))
    else:
        try:
            ask(messages, timeout=1.5)
        except openai.APITimeoutError as error:
            heard = type(error).__name__
    return {"heard": heard, "answer": ask(messages)["message"]["content"]}


def retry() -> dict:
    messages = user_turn("What is in it?")
    first = ask(messages)["message"]
    second = ask([*messages, first, {"role": "user", "content": "Sure?"}])["message"]
    return {"answer": first["content"], "again": second["content"]}


sys.stdout.write(json.dumps(globals()[SCENARIO]()))
