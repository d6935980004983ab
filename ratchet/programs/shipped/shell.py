"""The program `shell`: the model writes a shell command, sees what it printed, and goes on until it writes none.

Run inside a sandbox, which is what makes this harmless; the standard library alone. The task is on stdin, the last
thing the model said is the answer.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request

RULES = (
    "You solve a task in a Linux shell. To run a command, answer with one fenced block that begins with ```sh and "
    "holds nothing but the command; you are then shown what it printed. When you are done, answer with the result "
    "and no fenced block."
)
COMMAND = re.compile(r"```(?:sh|bash)\n(.*?)```", re.DOTALL)
MOST_TURNS = 12
COMMAND_S = 60
SHOWN = 4_000


def ask_model(messages: list[dict[str, str]]) -> str:
    body = json.dumps({"model": "ratchet", "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body, headers)
    with urllib.request.urlopen(request) as reply:
        return str(json.load(reply)["choices"][0]["message"]["content"] or "")


def ran(command: str) -> str:
    try:
        run = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"It did not end within {COMMAND_S} s."
    printed = run.stdout.decode(errors="replace")
    shown = printed if len(printed) <= SHOWN else f"{printed[: SHOWN // 2]}\n…\n{printed[-SHOWN // 2 :]}"
    return f"Exit code {run.returncode}.\n{shown}"


def main() -> None:
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": sys.stdin.read()}]
    for _ in range(MOST_TURNS):
        answer = ask_model(messages)
        command = COMMAND.search(answer)
        if command is None:
            break
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": ran(command[1])}]
    sys.stdout.write(f"{answer}\n")


if __name__ == "__main__":
    main()
