"""Finds what an answer says in a vote (`select: majority`), whether it votes at all, and which say the same. Pure.

It is what the task's own checks look at. Of a task without a workspace that is the text. Of one with a workspace it is

- what was done to the files, where the criteria hold hidden tests, or where neither a reference nor criteria say what
  is right. The files that the workspace collects count, and of the patch the files that were there before: what an
  answer adds beside them may be a cache, notes or the output of a test. Of an answer that changes none of them, the
  files that it adds count. What the checks put back, or put their own files over, never counts;
- else the text: a reference and criteria without tests are held against that alone, whatever a program did to find it.

Whoever ended badly or without a call of a model, and has nothing to show, has no vote: a program that crashed at its
start says nothing, however many say the same nothing.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

CRASHED = ("failed", "limit")
"""Ends of a rollout that did not end by itself, and left an answer all the same."""
SECTION = "diff --git "
"""Each file of a patch begins so, at the beginning of a line; no other line of it does."""
ADDED = "new file mode "


class Artifact(Protocol):
    @property
    def patch(self) -> str: ...
    @property
    def files(self) -> Mapping[str, str]: ...


class Usage(Protocol):
    @property
    def calls(self) -> int: ...


class Voting(Protocol):
    """A line of the log, or a view of one."""

    @property
    def response(self) -> str | None: ...
    @property
    def artifact(self) -> Artifact | None: ...
    @property
    def sample_status(self) -> str | None: ...
    @property
    def usage(self) -> Usage | None: ...
    @property
    def foreign(self) -> Sequence[object] | None: ...
    @property
    def reference(self) -> str | None: ...
    @property
    def criteria(self) -> str | None: ...


class Vote(NamedTuple):
    """`meaning`: equal for answers that say the same. `empty`: it says nothing."""

    meaning: str
    empty: bool


def vote_of(line: Voting) -> Vote:
    """Return what it says, whether or not it has a vote."""
    tests = _hidden_tests(line.criteria)
    if line.artifact is None or (tests is None and (line.reference is not None or line.criteria is not None)):
        return Vote(meaning(line.response or ""), not (line.response or "").strip())
    changed = _changes_that_count(line.artifact.patch, tests or {})
    return Vote(repr((changed, sorted(line.artifact.files.items()))), not changed and not line.artifact.files)


def has_vote(line: Voting) -> bool:
    """Tell whether a sample has a vote: two of crashed, no call of a model, and an empty vote take it away."""
    crashed = line.sample_status in CRASHED
    silent = line.usage is not None and line.usage.calls == 0 and not line.foreign
    return crashed + silent + vote_of(line).empty < 2


def _hidden_tests(criteria: str | None) -> dict[str, Any] | None:
    """Read them as services/scorer/hidden_tests/plan.py does."""
    try:
        found = json.loads(criteria or "")
    except (ValueError, RecursionError):
        return None
    tests = found.get("tests") if isinstance(found, dict) else None
    return tests if isinstance(tests, dict) else None


def _changes_that_count(patch: str, tests: Mapping[str, Any]) -> list[str]:
    """The parts of the patch that count, a file each."""
    seen = [section for section in _sections(patch) if not _is_overruled(_path_of(section), tests)]
    known = [section for section in seen if not section.partition("\n")[2].startswith(ADDED)]
    return known or seen


def _sections(patch: str) -> Iterator[str]:
    before, *sections = "\n".join(("", patch.rstrip("\n"))).split(f"\n{SECTION}")
    if before.strip():  # no patch of git's
        yield before
    yield from sections


def _path_of(section: str) -> str:
    """Both names of a file are the same: `a/PATH b/PATH`."""
    names = section.partition("\n")[0]
    return names[2 : 2 + (len(names) - 5) // 2]


def _is_overruled(path: str, tests: Mapping[str, Any]) -> bool:
    suite = tests.get("suite")
    own = [*_names(tests.get("files")), *_names(suite.get("files") if isinstance(suite, dict) else None)]
    restored = _names(tests.get("restore"))
    return path in own or any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in restored)


def _names(given: Any) -> list[str]:
    return [one for one in given if isinstance(one, str)] if isinstance(given, dict | list) else []


MOST_MARKS = 30
"""One after the other. To order them takes time by the square of their number; Unicode's stream-safe format has as many
at most."""
HIDDEN_MARKS = "\u0344\u0f73\u0f75\u0f81"
"""Each is made of two."""


def meaning(text: str) -> str:
    """Equal for answers that say the same."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_number)
        return f"json {json.dumps(value, sort_keys=True, separators=(',', ':'), allow_nan=False)}"
    except (ValueError, RecursionError):
        return f"text {_plain(text)}"


def _plain(text: str) -> str:
    normal = text if _heaps_marks(text) else unicodedata.normalize("NFC", text)
    return "\n".join(line.rstrip() for line in normal.splitlines()).strip()


def _heaps_marks(text: str) -> bool:
    if text.isascii():
        return False
    marks = 0
    for letter in text:
        marks = marks + 1 if unicodedata.combining(letter) or letter in HIDDEN_MARKS else 0
        if marks > MOST_MARKS:
            return True
    return False


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        raise ValueError("a name is there twice")
    return found


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
