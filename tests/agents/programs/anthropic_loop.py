"""A linear agent of Anthropic's client, told as openai_loop.py is: `python anthropic_loop.py`."""

import json
import sys

import anthropic

SYSTEM = "You look into boxes, and say what is in them."
SCHEMA = {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]}
TOOL = {"name": "look", "description": "Look into a box.", "input_schema": SCHEMA}


class Agent:
    def __init__(self, client: anthropic.Anthropic) -> None:
        self.ask = client.messages
        self.history: list = []
        self.calls: list = []

    def hear(self, text: str) -> None:
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call in self.calls]
        self.history.append({"role": "user", "content": results or text})

    def answer(self, turn: dict) -> str:
        given = {"model": "any", "system": SYSTEM, "messages": self.history, "tools": [TOOL]}
        given |= {"max_tokens": turn["max_tokens"]} | ({"stop_sequences": turn["stop"]} if turn["stop"] else {})
        if turn["stream"]:
            with self.ask.stream(**given) as stream:
                message = stream.get_final_message()
        else:
            message = self.ask.create(**given)
        self.history.append({"role": "assistant", "content": message.content})
        self.calls = [block for block in message.content if block.type == "tool_use"]
        return "".join(block.text for block in message.content if block.type == "text")


shared = anthropic.Anthropic()
for line in sys.stdin:
    rollout = json.loads(line)
    agent = Agent(shared.with_options(api_key=rollout["key"]) if "key" in rollout else shared)
    said, called = "", 0
    for turn in rollout["turns"]:
        agent.hear(turn["text"])
        said = agent.answer(turn)
        called += len(agent.calls)
    sys.stdout.write(json.dumps({"called": called, "answer": said}) + "\n")
    sys.stdout.flush()
