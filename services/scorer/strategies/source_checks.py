"""Checks JavaScript, Go and Rust: for `style` by node, gofmt, go vet and rustc in the sandbox, for `security` by
patterns, because none of these tools looks for holes.

A tool that the sandbox does not have checks nothing, and answers in its language get no score for that part. Patterns
need no tool. They read the text only: they find neither what is put together at run time nor what has another name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import re2

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
VERSIONS: Mapping[Language, Sequence[str]] = {
    "javascript": ("node", "--version"),
    "go": ("go", "version"),
    "rust": ("rustc", "--version"),
}
RUSTC = (
    'grep -q "fn main" "$1" && type=bin || type=lib; '
    'rustc --edition=2021 --crate-type=$type --emit=metadata --error-format=json -o /tmp/checked "$1"'
)
EACH = 'command=$1; shift; for one in "$@"; do sh -c "$command" sh "$one"; done; true'
RUST = Check("rustc", lambda paths: ["sh", "-c", EACH, "sh", RUSTC, *paths], CHECKS["rust"][0].read)


@dataclass(frozen=True, slots=True)
class Checked:
    """A language as one kind of part looks at it: its tools, which of their findings count, and patterns by name."""

    language: Language
    checks: tuple[Check, ...] = ()
    counts: re.Pattern[str] = re.compile(".*")
    patterns: Mapping[str, str] = field(default_factory=dict)

    def matches_in(self, file: TreeFile | None) -> Counter[str]:
        """Count what each pattern finds in a file, without whole lines of comments."""
        text = COMMENTS.sub("", bytes(file.content).decode("utf-8", "replace")) if file and self.patterns else ""
        return Counter({name: sum(1 for _ in re2.finditer(f"(?m){one}", text)) for name, one in self.patterns.items()})


STYLE = (
    Checked("javascript", CHECKS["javascript"]),
    Checked("go", CHECKS["go"]),
    Checked("rust", (RUST,), re.compile(r"(?!E\d|error).*")),
)

COMMENTS = re2.compile(r"(?m)^\s*//.*$|^\s*/\*(?s:.*?)\*/")
"""Comments that begin a line. One behind code is read as code is, because strings can look like its beginning."""
SHELL = r'"(?:/[\w/]*/)?(?:(?:ba|da|z|k)?sh|cmd(?:\.exe)?)"'
SQL = r"(?i:select\s[^\"'`]*\sfrom|insert\s+into|update\s[^\"'`]*\sset|delete\s+from)\s[^\"'`]*"
SECRET = r"(?i:token|secret|passw|nonce|salt|session)\w*[^:=\n]*[:=]+[^;\n]*"
ALONE = r"(?:^|[^.\w$])"
"""No method of something else, such as `exec` of a regular expression."""
HOLES: Mapping[Language, Mapping[str, str]] = {
    "javascript": {
        "eval": rf"(?:{ALONE}|\b(?:globalThis|global|window|self)\.)eval\s*[(),;]",
        "function-of-text": rf"{ALONE}Function\s*\(|\bvm\.runIn\w+\s*\(",
        "timer-of-text": r"\bset(?:Timeout|Interval)\s*\(\s*[\"'`]",
        "shell": rf"(?:{ALONE}|\b(?:cp|childProcess|child_process(?:[\"']\))?)\.)exec\s*\(|\bexecSync\s*\(",
        "shell-option": r"\bshell\s*:\s*true",
        "html": r"\.(?:inner|outer)HTML\s*\+?=\s*(?:[^=\s\"'`]|[\"'`][^\"'`])",
        "written-html": r"\bdocument\.write(?:ln)?\s*\(|\.insertAdjacentHTML\s*\(",
        "sql": rf"[\"'`]{SQL}(?:\$\{{|[\"']\s*\+)",
        "random-secret": rf"{SECRET}Math\.random\b",
        "weak-hash": r"\bcreateHash\s*\(\s*[\"'`](?:md[45]|sha1)[\"'`]",
        "tls": r"\brejectUnauthorized\s*:\s*false|NODE_TLS_REJECT_UNAUTHORIZED",
    },
    "go": {
        "shell": rf"\bexec\.Command(?:Context)?\s*\([^\"\n]*{SHELL}",
        "command": r"\bexec\.Command\s*\(\s*[^\"`\s]",
        "html": r"\btemplate\.(?:HTML|HTMLAttr|JS|URL)\s*\(\s*[^\"`\s]",
        "sql": rf"\bSprintf\s*\(\s*[\"`]{SQL}%|[\"`]{SQL}[\"`]\s*\+",
        "random-secret": rf"{SECRET}\brand\.(?:Intn|Int31|Int63|Uint32|Uint64|Float32|Float64|Perm)",
        "weak-hash": r"\b(?:md5|sha1)\.(?:New|Sum)\s*\(|\b(?:des|rc4)\.New\w*\s*\(",
        "tls": r"\bInsecureSkipVerify\s*[:=]+\s*true",
        "unsafe": r"\bunsafe\.[A-Z]",
        "open-to-all": r"\bos\.(?:Chmod|Mkdir|MkdirAll|OpenFile|WriteFile)\s*\([^\n]*\b0o?[0-7]?[0-7]{2}[2367]\b",
    },
    "rust": {
        "shell": rf"\bCommand::new\s*\(\s*{SHELL}",
        "sql": rf"\bformat!\s*\(\s*\"{SQL}\{{",
        "tls": r"\bdanger_accept_invalid_(?:certs|hostnames)\s*\(\s*true",
        "unsafe": r"\bunsafe\s*(?:\{|fn\b|impl\b|trait\b|extern\b)",
    },
}
"""Regular expressions of RE2 by language and by what they find."""
SECURITY = tuple(Checked(language, patterns=patterns) for language, patterns in HOLES.items())


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
