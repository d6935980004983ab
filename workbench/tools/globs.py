"""Patterns of names and of text, on RE2: linear in what is searched, whatever the pattern. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import re2

from workbench.tools.operation import ToolError

MEMORY = 8 * 1024 * 1024


def compile_pattern(pattern: str, *, literal: bool = False, ignore_case: bool = False) -> Any:
    """Raises ToolError with RE2's words."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY
    options.literal = literal
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise ToolError(
            "arguments", f"the pattern is none of RE2 ({said}): it has no look-around and no back-references"
        ) from None


def matcher(glob: str) -> Callable[[str], bool]:
    """Return a test of paths: `*` and `?` stay in a name, `**` goes over folders; a name alone fits any folder."""
    parts, at = list[str](), 0
    while at < len(glob):
        if glob.startswith("**/", at):
            parts, at = [*parts, "(?:.*/)?"], at + 3
        elif glob.startswith("**", at):
            parts, at = [*parts, ".*"], at + 2
        else:
            found = {"*": "[^/]*", "?": "[^/]"}.get(glob[at])
            parts, at = [*parts, found if found else re2.escape(glob[at])], at + 1
    pattern = compile_pattern("".join(parts))
    if "/" in glob:
        return lambda path: pattern.fullmatch(path) is not None
    return lambda path: pattern.fullmatch(path.rpartition("/")[2]) is not None
