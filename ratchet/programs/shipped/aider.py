"""The program `aider`: `python aider.py TASK_FILE`, inside a sandbox, makes the workspace a repository and runs Aider.

It is given the files that the task names, or all of a small workspace; of a large one it has its own map. It streams
and edits by its own format for a model that it does not know. What it keeps about itself is removed in the end, but
nothing that was there before, such as the project's own settings for it. Left out: its commits, which would ask the
model for a message each.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MOST_BYTES = 32_000
"""Bytes of files that are given to it unasked."""
OPTIONS = (
    "--model=openai/any",
    "--message-file={task}",
    "--yes-always",
    "--no-auto-commits",
    "--no-gitignore",
    "--no-pretty",
    "--no-check-update",
    "--no-show-release-notes",
    "--no-show-model-warnings",
    "--no-suggest-shell-commands",
    "--no-detect-urls",
    "--analytics-disable",
    "--chat-history-file=/tmp/aider.chat",
    "--input-history-file=/tmp/aider.input",
)
BEGUN = (
    ("init", "-q"),
    ("config", "user.name", "Ratchet"),
    ("config", "user.email", "program@ratchet.invalid"),
    ("add", "--all"),
    ("commit", "-q", "--allow-empty", "-m", "begun"),
)


def make_repository() -> list[str]:
    """Make a repository of what is there, unless it is one; return its files."""
    if not Path(".git").exists():
        for typed in BEGUN:
            subprocess.run(["git", *typed], check=True)
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, check=True).stdout
    return [name for name in os.fsdecode(listed).split("\0") if name and Path(name).is_file()]


def choose_files(files: list[str], task: str) -> list[str]:
    """Those that are named, by their path or what it ends in; else all where they are few and text."""
    words = {word.strip("`'\".,:;()") for word in task.split()}
    named = [name for name in files if words.intersection((name, Path(name).name))]
    if named:
        return named
    small = sum(Path(name).stat().st_size for name in files) <= MOST_BYTES
    return [name for name in files if is_text(name)] if small else []


def is_text(name: str) -> bool:
    try:
        Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return False
    return True


def files_of_aider() -> set[Path]:
    """Return the files that are about Aider."""
    return set(Path().glob(".aider*"))


def forget(before: set[Path]) -> None:
    for one in files_of_aider() - before:
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def main() -> int:
    task, before = sys.argv[1], files_of_aider()
    files = choose_files(make_repository(), Path(task).read_text(encoding="utf-8", errors="replace"))
    options = [option.format(task=task) for option in OPTIONS]
    ended = subprocess.run([sys.executable, "-m", "aider", *options, *files], check=False)
    forget(before)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
