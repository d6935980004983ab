"""A linear agent of OpenAI's client: `python openai_loop.py chat|responses`.

Each line on its stdin is a rollout, in JSON: its turns, and its key where that is not the environment's. What a turn
brings is the result of each tool that was called, or else what the user says. A line back: how many tools were called,
and the last answer.
"""

import json
import sys

import openai

SYSTEM = "You look into boxes, and say what is in them."
PARAMETERS = {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]}
FUNCTION = {"name": "look", "description": "Look into a box.", "parameters": PARAMETERS}


class Chat:
    def __init__(self, client: openai.OpenAI) -> None:
        self.ask = client.chat.completions
        self.history: list = [{"role": "system", "content": SYSTEM}]
        self.calls: list = []

    def hear(self, text: str) -> None:
        results = [{"role": "tool", "tool_call_id": call.id, "content": text} for call in self.calls]
        self.history += results or [{"role": "user", "content": text}]

    def answer(self, turn: dict) -> str:
        given = {"model": "any", "messages": self.history, "tools": [{"type": "function", "function": FUNCTION}]}
        given |= {"max_tokens": turn["max_tokens"]} | ({"stop": turn["stop"]} if turn["stop"] else {})
        if turn["stream"]:
            with self.ask.stream(**given) as stream:
                stream.until_done()  # the final completion is refused where an answer was cut off
                message = stream.current_completion_snapshot.choices[0].message
        else:
            message = self.ask.create(**given).choices[0].message
        self.history.append(message)
        self.calls = message.tool_calls or []
        return message.content or ""


class Responses:
    def __init__(self, client: openai.OpenAI) -> None:
        self.ask = client.responses
        self.history: list = []
        self.calls: list = []

    def hear(self, text: str) -> None:
        kind = "function_call_output"
        results = [{"type": kind, "call_id": call.call_id, "output": text} for call in self.calls]
        self.history += results or [{"role": "user", "content": text}]

    def answer(self, turn: dict) -> str:
        tools = [{"type": "function", "strict": False} | FUNCTION]
        given = {"model": "any", "instructions": SYSTEM, "input": self.history, "tools": tools}
        given |= {"max_output_tokens": turn["max_tokens"]}
        if turn["stream"]:  # the last event has all of it, also where it was cut off
            *_, last = self.ask.create(stream=True, **given)
            response = last.response
        else:
            response = self.ask.create(**given)
        self.history += response.output
        self.calls = [item for item in response.output if item.type == "function_call"]
        return response.output_text


shared = openai.OpenAI()
for line in sys.stdin:
    rollout = json.loads(line)
    client = shared.with_options(api_key=rollout["key"]) if "key" in rollout else shared
    agent = {"chat": Chat, "responses": Responses}[sys.argv[1]](client)
    said, called = "", 0
    for turn in rollout["turns"]:
        agent.hear(turn["text"])
        said = agent.answer(turn)
        called += len(agent.calls)
    sys.stdout.write(json.dumps({"called": called, "answer": said}) + "\n")
    sys.stdout.flush()
