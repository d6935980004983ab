"""What an answer is, where it is no artifact: files, or a patch. Pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ratchet.sandbox.job import MAX_FILES, SandboxError, require_inside
from services.scorer.matching.json_values import NoJson, read

_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PATCH = re.compile(r"^```(?:diff|patch)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BEGINS = ("diff --git ", "--- ")


class NoFiles(ValueError):
    """The answer holds no files that could be tested; the sentence says why."""


def files_in(text: str, place: str | None) -> dict[str, bytes]:
    """By path. `{"files": {…}}` is several; else the first fenced block, or all of the text, is the one at `place`,
    where there is one. Raises NoFiles."""
    given = _several(text)
    if given is None:
        fence = _FENCE.search(text)
        given = {place: fence.group(1) if fence else text} if place else {}
    if len(given) > MAX_FILES:
        raise NoFiles(f"the answer has {len(given)} files, and there may be {MAX_FILES}")
    try:
        for path in given:
            require_inside(path)
            path.encode()
    except (SandboxError, UnicodeEncodeError) as error:
        raise NoFiles(str(error)) from None
    return {str(PurePosixPath(path)): content.encode("utf-8", "replace") for path, content in given.items()}


def patch_in(text: str) -> str | None:
    """The first fenced block that says it is a patch, or all of a text that begins as one."""
    if found := _PATCH.search(text):
        return found.group(1)
    return text if text.lstrip().startswith(_BEGINS) else None


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
