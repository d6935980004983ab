"""The same agent as a program of the runner: its tools work on the files of the sandbox it is in.

The task is on its stdin, what the model says in the end is what it prints; what became of the files is for the runner
to see. Started once for each rollout, so it is the standard library alone, and little of that. Its argument is a file
with the tools that the model is offered, and how many calls of the model there may be.

A model whose template knows no tools calls them in JSON, `{"read": "a"}` and `{"b": "what b is to hold"}`, and the file
has the `examples` that come before the question. What is read is the user's next turn; the first file that is written,
and an answer that is no call, ends the work.
"""

# ruff: noqa: PTH123  (pathlib takes as long to import as all the rest)

from __future__ import annotations

import http.client
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

UNKNOWN = "?"
MOST_READ = 256


def use(tool: str, arguments: str) -> str:
    """Use the tool and return its result; `?` where it can't do what it is asked."""
    try:
        given = json.loads(arguments)
        if tool == "read_file":
            with open(str(given["path"]), encoding="utf-8") as file:
                return file.read(MOST_READ)
        if tool == "add":
            return str(int(given["a"]) + int(given["b"]))
        if tool == "write_file":
            with open(str(given["path"]), "w", encoding="utf-8") as file:
                file.write(str(given["content"]))
            return "ok"
    except (KeyError, TypeError, ValueError, OSError):
        pass
    return UNKNOWN


def ask(connection: http.client.HTTPConnection, **asked: object) -> dict[str, Any]:
    """Return the model's message. A call that fails ends the program."""
    path = os.environ["OPENAI_BASE_URL"].split("/", 3)[3]
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    connection.request("POST", f"/{path}/chat/completions", json.dumps({"model": "any", **asked}), headers)
    reply = connection.getresponse()
    told = reply.read()
    if reply.status != http.client.OK:
        sys.exit(told.decode(errors="replace"))
    return json.loads(told)["choices"][0]["message"]  # type: ignore[no-any-return]


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        offered = json.load(file)
    text = sys.stdin.read().strip()
    connection = http.client.HTTPConnection(os.environ["OPENAI_BASE_URL"].split("/", 3)[2])
    answer = (work_in_json if "examples" in offered else work)(connection, offered, text)
    sys.stdout.write(answer)


def work(connection: http.client.HTTPConnection, offered: dict[str, Any], text: str) -> str:
    """Return what the model says in the end, "" where it called tools to the last."""
    about, _, question = text.partition(": ")
    blanked = about.endswith(", blanked")
    messages = [{"role": "user", "content": question}]
    for _ in range(offered["most_calls"]):
        message = ask(connection, messages=messages, tools=offered["tools"])
        if not message.get("tool_calls"):
            return str(message["content"])
        messages.append(message)
        for call in message["tool_calls"]:
            brought = use(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": UNKNOWN if blanked else brought})
    return ""


def work_in_json(connection: http.client.HTTPConnection, offered: dict[str, Any], text: str) -> str:
    """Return what was written, "" where nothing was."""
    messages = [*offered["examples"], {"role": "user", "content": text}]
    for _ in range(offered["most_calls"]):
        message = ask(connection, messages=messages)
        try:
            ((name, value),) = json.loads(message["content"]).items()
        except (ValueError, AttributeError):
            break
        if name != "read":
            use("write_file", json.dumps({"path": name, "content": value}))
            return str(value)
        messages += [message, {"role": "user", "content": use("read_file", json.dumps({"path": value}))}]
    return ""


if __name__ == "__main__":
    main()
