"""The same agent as a program of the runner: its tools work on the files of the sandbox it is in.

The task is on its stdin, what the model says in the end is what it prints; what became of the files is for the runner
to see. Started once for each rollout, so it is the standard library alone, and little of that. Its argument is a file
with the tools that the model is offered, and how many calls of the model there may be.
"""

# ruff: noqa: PTH123  (pathlib takes as long to import as all the rest)

import http.client
import json
import os
import sys

UNKNOWN = "?"
MOST_READ = 64


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


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        offered = json.load(file)
    about, _, question = sys.stdin.read().strip().partition(": ")
    blanked = about.endswith(", blanked")
    _, _, host, path = os.environ["OPENAI_BASE_URL"].split("/", 3)
    connection = http.client.HTTPConnection(host)
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    messages = [{"role": "user", "content": question}]
    for _ in range(offered["most_calls"]):
        body = json.dumps({"model": "any", "messages": messages, "tools": offered["tools"]})
        connection.request("POST", f"/{path}/chat/completions", body, headers)
        reply = connection.getresponse()
        told = reply.read()
        if reply.status != http.client.OK:
            sys.exit(told.decode(errors="replace"))
        message = json.loads(told)["choices"][0]["message"]
        if not message.get("tool_calls"):
            sys.stdout.write(str(message["content"]))
            return
        messages.append(message)
        for call in message["tool_calls"]:
            brought = use(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": UNKNOWN if blanked else brought})


if __name__ == "__main__":
    main()
