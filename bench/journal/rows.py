"""Records as they stand in logs/agent_interactions.jsonl."""

from __future__ import annotations

import json
import random


def row(number: int) -> bytes:
    """About 2.9 kB, the same for the same number."""
    dice = random.Random(number)
    record = {
        "task_id": f"task-{number:09d}",
        "input": "Sort the letters of the word. " * 14,
        "response": "abcdefghij " * 12,
        "score": dice.random(),
        "agent_id": "small",
        "adapter_version": "v1.0.1",
        "sample": number % 8,
        "prompt_ids": [dice.randrange(32_000) for _ in range(60)],
        "completion_ids": [dice.randrange(32_000) for _ in range(110)],
        "logprobs": [round(-dice.expovariate(1.5), 7) for _ in range(110)],
    }
    return json.dumps(record, separators=(",", ":")).encode()
