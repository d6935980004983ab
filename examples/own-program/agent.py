"""An agent of one's own in twenty lines: it asks the model, checks the answer itself, and asks again where it must.

It knows nothing of Ratchet: OPENAI_BASE_URL and a key are in its environment, the task is on its stdin, and what it
prints last is its answer. The standard library alone; with `pip install openai`, `OpenAI()` finds the same variables.
"""

import json
import os
import sys
import urllib.request


def ask(messages):
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    body = json.dumps({"model": "any", "messages": messages}).encode()
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


task = sys.stdin.read().strip()  # such as "sort: dbcae"
letters = task.removeprefix("sort:").strip()
messages = [{"role": "user", "content": task}]
for _ in range(3):
    answer = ask(messages)
    if sorted(answer) == sorted(letters):  # the right letters, whatever their order: what an agent can see by itself
        break
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": task}]
sys.stdout.write(f"{answer}\n")
