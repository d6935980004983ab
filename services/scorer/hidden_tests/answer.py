"""The files that an answer is."""

from __future__ import annotations

import re

from ratchet.sandbox.job import MAX_FILES, SandboxError, require_inside
from services.scorer.hidden_tests.plan import Plan
from services.scorer.matching.json_values import NoJson, read

_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


class NoFiles(ValueError):
    """The answer holds no files that could be tested; the sentence says why."""


def files_of(text: str, plan: Plan) -> dict[str, bytes]:
    """By path in the workspace. `{"files": {…}}` is several; else the first fenced block, or all of the text, is one.

    The plan's own files are put over them. Raises NoFiles.
    """
    given = _several(text)
    if given is None:
        fence = _FENCE.search(text)
        given = {plan.place: fence.group(1) if fence else text}
    if len(given) + len(plan.files) > MAX_FILES:
        raise NoFiles(f"the answer has {len(given)} files; with the task's own there may be {MAX_FILES}")
    try:
        for path in given:
            require_inside(path)
    except SandboxError as error:
        raise NoFiles(str(error)) from None
    whole = given | plan.files
    return {path: content.encode("utf-8", "replace") for path, content in whole.items()}


def _several(text: str) -> dict[str, str] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = read(text.strip())
    except NoJson:
        return None
    files = found.get("files") if isinstance(found, dict) and set(found) == {"files"} else None
    if not isinstance(files, dict) or not all(isinstance(content, str) for content in files.values()):
        return None
    return files
