"""Reads an answer that is no artifact: files, or a patch. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from services.scorer.matching.json_values import NoJson, read
from workbench.sandbox.job import MAX_FILES, SandboxError, require_inside

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")
_PATCH_FENCES = ("diff", "patch", "udiff")
_BEGINS = ("diff --git ", "--- ")
_PATCH = re.compile(r"^(?:diff --git |--- .*\n\+\+\+ )", re.MULTILINE)


class NoFiles(ValueError):
    """The answer holds no files that could be tested; the sentence says why."""


def files_in(text: str, place: str | None) -> dict[str, bytes]:
    """Return the files by path.

    `{"files": {…}}`, in a fenced block or as all of the text, is several. Else the first fenced block (of those that
    are indented least), or all of the text, is the one at `place`, where there is one. Raises NoFiles.
    """
    blocks = [content for _, content in _blocks(text)]
    given = next((files for one in (text, *blocks) if (files := _several(one)) is not None), None)
    if given is None:
        given = {place: blocks[0] if blocks else text} if place else {}
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
    """The first fenced block that says it is a patch, or begins as one; or a text without a block, from where a patch
    begins. A patch whose every line ends in CRLF is one that ends them in LF."""
    blocks = _blocks(text)
    patch = next((content for fence, content in blocks if fence.startswith(_PATCH_FENCES)), None)
    if patch is None:
        begun = (content for _, content in blocks if _PATCH.match(content.lstrip()))
        patch = text if text.lstrip().startswith(_BEGINS) else next(begun, None)
    if patch is None and not blocks and (found := _PATCH.search(text)):
        patch = text[found.start() :]
    if patch is not None and patch.count("\n") == patch.count("\r\n"):
        return patch.replace("\r\n", "\n")
    return patch


def _blocks(text: str) -> list[tuple[str, str]]:
    """Yield the fence's label and the content of each fenced block; those that are indented least come first."""
    return [(fence, content) for _, fence, content in sorted(_find_blocks(text), key=lambda block: block[0])]


def _find_blocks(text: str) -> Iterator[tuple[int, str, str]]:
    opening: re.Match[str] | None = None
    content: list[str] = []
    for line in text.split("\n"):
        bare = line.lstrip(" ")
        if opening is None:
            opening, content = _FENCE.match(line), []
        elif bare.startswith(opening[2]) and len(line) - len(bare) <= len(opening[1]):
            yield len(opening[1]), opening[3].strip(), "".join(content)
            opening = None
        else:
            content.append(line.removeprefix(opening[1]) + "\n")


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
