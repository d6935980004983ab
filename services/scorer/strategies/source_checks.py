"""Checks JavaScript, Go and Rust for `style` and `security`: by node, gofmt, go vet and rustc, in the sandbox.

A tool that the sandbox does not have checks nothing, and answers in its language get no score for that part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.scorer.ground import OwnFault
from workbench.sandbox.job import End, Job, Result, SandboxError, TreeFile
from workbench.sandbox.limits import MIB, Limits
from workbench.tools.code import CHECKS, GO, Check, Language
from workbench.tools.sandboxed import Ran

LIMITS = Limits(
    wall_s=90, cpu_s=60, output_bytes=16 * MIB, workspace_bytes=256 * MIB, memory_bytes=1024 * MIB, processes=256
)
PLACE = re.compile(r"(before|after)/m(\d+)\.\w+$")
ELSEWHERE = re.compile(r"undefined:|undeclared|could not import|cannot find package")
"""A file is checked alone: what it says of names that other files have is no finding."""
UNSAFE = "unsafe_code"
VERSIONS: Mapping[Language, Sequence[str]] = {
    "javascript": ("node", "--version"),
    "go": ("go", "version"),
    "rust": ("rustc", "--version"),
}
RUSTC = (
    'grep -q "fn main" "$1" && type=bin || type=lib; '
    'rustc --edition=2021 --crate-type=$type -W unsafe-code --emit=metadata --error-format=json -o /tmp/checked "$1"'
)
EACH = 'command=$1; shift; for one in "$@"; do sh -c "$command" sh "$one"; done; true'
RUST = Check("rustc", lambda paths: ["sh", "-c", EACH, "sh", RUSTC, *paths], CHECKS["rust"][0].read)


@dataclass(frozen=True, slots=True)
class Checked:
    """A language as one kind of part looks at it: its tools, and which of their findings count."""

    language: Language
    checks: tuple[Check, ...]
    counts: re.Pattern[str]


STYLE = (
    Checked("javascript", CHECKS["javascript"], re.compile(".*")),
    Checked("go", CHECKS["go"], re.compile(".*")),
    Checked("rust", (RUST,), re.compile(rf"(?!E\d|error|{UNSAFE}).*")),
)
SECURITY = (Checked("rust", (RUST,), re.compile(UNSAFE)),)


def job_of(check: Check, files: Mapping[str, TreeFile]) -> Job:
    """`files`: under names of ours, as in PLACE."""
    return Job(check.command(sorted(files)), tree=files, environment={**GO, "GO111MODULE": "off"}, limits=LIMITS)


def findings_in(checked: Checked, check: Check, result: Result) -> dict[tuple[str, int], Counter[str]]:
    """Rules by before or after and the file's number. Raises OwnFault for what the tool can't read to its end."""
    if result.end is End.CANCELLED:
        raise SandboxError(result.says)
    if result.end is not End.EXITED:
        raise OwnFault(f"{check.wants} does not get to the end of it: {result.says}")
    found: dict[tuple[str, int], Counter[str]] = {}
    ran = Ran(result.exit_code or 0, result.stdout.decode("utf-8", "replace"), result.stderr.decode("utf-8", "replace"))
    for one in check.read(ran):
        place, rule = PLACE.search(one["path"]), str(one["rule"])
        if place is not None and checked.counts.fullmatch(rule) and not ELSEWHERE.search(one["says"]):
            found.setdefault((place[1], int(place[2])), Counter())[rule] += 1
    return found
