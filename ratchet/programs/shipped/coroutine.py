"""Run inside a sandbox: awaits a program's coroutine function, and prints what it returns.

    python3 coroutine.py MODULE:FUNCTION [FOLDER…]

It is called with the task's input, the base URL of the model and its key. Modules are looked for in the folders first.
What the function prints itself goes to stderr. The standard library alone.
"""

import asyncio
import contextlib
import importlib
import os
import sys


def main() -> None:
    named, *folders = sys.argv[1:]
    sys.path[:0] = folders
    with contextlib.redirect_stdout(sys.stderr):
        module, _, function = named.partition(":")
        agent = getattr(importlib.import_module(module), function)
        answer = asyncio.run(agent(sys.stdin.read(), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]))
    sys.stdout.write(f"{answer}\n")


if __name__ == "__main__":
    main()
