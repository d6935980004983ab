"""Code run, checked and measured: 3 operations for Python, JavaScript, Go and Rust, in the sandbox, on a copy.

What runs is a file of the workspace or a snippet. A copy is thrown away afterwards: nothing that a run writes comes
back. The checks are those of the languages' own tools; a tool that is not there is said, and is no finding.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import re2
from pydantic import Field, StringConstraints

from workbench.tools.operation import Answer, Effect, Subject, ToolError, WorkspacePath, object_of
from workbench.tools.sandboxed import NOT_PROJECT, Order, Ran, in_project, limits_for, run_in_copy
from workbench.tools.workshop import Workshop

CODE = Subject("code")

Language = Literal["python", "javascript", "go", "rust"]
SUFFIXES: Mapping[str, Language] = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".mjs", ".cjs"), "javascript"),
    ".go": "go",
    ".rs": "rust",
}
SHORT = Annotated[str, StringConstraints(max_length=60_000)]
"""Text that goes in as an argument of a process, which Linux bounds at 128 KiB."""
Snippet = Annotated[SHORT | None, Field(description="The program itself, in place of a file; name its language.")]
Arguments = Annotated[tuple[Annotated[str, StringConstraints(max_length=1000)], ...], Field(max_length=50)]
Stdin = Annotated[SHORT, Field(description="What it reads on its standard input.")]
RunSeconds = Annotated[float, Field(gt=0, le=600, description="It is ended then.")]
File = Annotated[WorkspacePath | None, Field(description="A program of the workspace.")]
Named = Annotated[Language | None, Field(description="By the file's ending, if not named.")]
HEAD, TAIL = 3_000, 9_000
MOST_FILES, MOST_FINDINGS, TOP = 200, 100, 15
GO = {"GOCACHE": "/tmp/go-cache", "GOPATH": "/tmp/go", "GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
BUILT = "/tmp/ratchet-built"

RUNNER = """
import json, os, pstats, subprocess, sys, threading, time
asked = json.loads(sys.argv[1])
def run(command, stdin, seconds):
    open("/tmp/ratchet-in", "w").write(stdin)
    with open("/tmp/ratchet-in") as given, open("/tmp/ratchet-out", "wb") as out, open("/tmp/ratchet-err", "wb") as err:
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=given, stdout=out, stderr=err, start_new_session=True)
        late = threading.Timer(seconds, lambda: os.killpg(process.pid, 9))
        late.start()
        _, status, used = os.wait4(process.pid, 0)
        took = time.monotonic() - began
        late.cancel()
    said = [open(path, errors="replace").read(1 << 20) for path in ("/tmp/ratchet-out", "/tmp/ratchet-err")]
    return {"exit_code": os.waitstatus_to_exitcode(status), "stdout": said[0], "stderr": said[1],
            "seconds": round(took, 3), "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
            "peak_mb": round(used.ru_maxrss / 1024, 1), "ended": took >= seconds}
if asked["snippet"] is not None:
    open(asked["file"], "w").write(asked["snippet"])
found = run(asked["build"], "", asked["seconds"]) if asked["build"] else {"exit_code": 0}
if found["exit_code"] == 0:
    found = run(asked["command"], asked["stdin"], asked["seconds"])
    if asked["profile"] and os.path.exists(asked["profile"]):
        rows = pstats.Stats(asked["profile"], stream=open(os.devnull, "w")).stats.items()
        rows = sorted(rows, key=lambda row: -row[1][3])[:asked["top"]]
        found["top"] = [{"function": f"{where[0]}:{where[1]} {where[2]}", "calls": row[1],
                         "own_seconds": round(row[2], 4), "seconds": round(row[3], 4)} for where, row in rows]
else:
    found["built"] = False
print(json.dumps(found))
"""


@CODE.operation(Effect.RUNS)
async def code_run(
    at: Workshop,
    file: File = None,
    snippet: Snippet = None,
    language: Named = None,
    arguments: Arguments = (),
    stdin: Stdin = "",
    seconds: RunSeconds = 30.0,
) -> Answer:
    """Run a program of the workspace, or a snippet, and say what it printed and how it ended. What it writes to files
    is thrown away."""
    found = await _run(at, file, snippet, language, arguments, stdin, seconds, profile=False)
    return {name: found[name] for name in ("exit_code", "stdout", "stderr", "seconds", "built") if name in found} | (
        {"says": f"it was ended after {seconds:g} s"} if found.get("ended") else {}
    )


@CODE.operation(Effect.RUNS)
async def code_profile(
    at: Workshop,
    file: File = None,
    snippet: Snippet = None,
    language: Named = None,
    arguments: Arguments = (),
    stdin: Stdin = "",
    seconds: RunSeconds = 60.0,
) -> Answer:
    """Run a program and say what it took: wall clock, processor, memory at its peak, and of Python the functions that
    took longest."""
    found = await _run(at, file, snippet, language, arguments, stdin, seconds, profile=True)
    names = ("exit_code", "seconds", "cpu_seconds", "peak_mb", "top", "built")
    told = {name: found[name] for name in names if name in found}
    return told | ({"stderr": found["stderr"]} if found["exit_code"] else {})


async def _run(
    at: Workshop,
    file: str | None,
    snippet: str | None,
    language: Language | None,
    arguments: Sequence[str],
    stdin: str,
    seconds: float,
    *,
    profile: bool,
) -> dict[str, Any]:
    if (file is None) == (snippet is None):
        raise ToolError("arguments", "name either a file or a snippet")
    if file is not None:
        file = at.tree.clean(file)
        at.tree.stat(file)
        language = language or SUFFIXES.get(PurePosixPath(file).suffix)
    if language is None:
        raise ToolError("arguments", f"name the language: {', '.join(dict.fromkeys(SUFFIXES.values()))}")
    suffix = next(ending for ending, named in SUFFIXES.items() if named == language)
    path = file if file is not None else f"ratchet_snippet{suffix}"
    measured = "/tmp/ratchet-profile" if profile and language == "python" else None
    build, command = _commands(language, path, measured)
    asked = {
        "file": path,
        "snippet": snippet,
        "build": build,
        "command": [*command, *arguments],
        "stdin": stdin,
        "seconds": seconds,
        "profile": measured,
        "top": TOP,
    }
    ran = await _in_sandbox(at, ["python3", "-I", "-S", "-c", RUNNER, json.dumps(asked)], seconds=seconds * 2 + 10)
    found = object_of(ran.stdout)
    if "exit_code" not in found:
        program = (build or command)[0]
        raise ToolError("ours", f"{program} can't be run in the sandbox: {ran.stderr.strip()[-300:]}")
    return found | {name: _shorten(str(found.get(name, ""))) for name in ("stdout", "stderr")}


def _commands(language: Language, path: str, profile: str | None) -> tuple[list[str], list[str]]:
    """Return the command that builds it, empty if none does, and the one that runs it."""
    match language:
        case "python":
            return [], ["python3", *(["-m", "cProfile", "-o", profile] if profile else []), path]
        case "javascript":
            return [], ["node", path]
        case "go":
            return ["go", "build", "-o", BUILT, path], [BUILT]
        case "rust":
            return ["rustc", "--edition=2021", "-o", BUILT, path], [BUILT]


Finding = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """A tool: its command for some files, and how what it prints is read. `wants` is its program."""

    wants: str
    command: Callable[[Sequence[str]], list[str]]
    read: Callable[[Ran], Iterable[Finding]]


def read_ruff(ran: Ran) -> Iterable[Finding]:
    for line in ran.stdout.splitlines():
        if one := object_of(line):
            where = one.get("location") or {}
            path = str(one.get("filename", "")).partition("/tree/")[2] or str(one.get("filename"))
            yield _finding(path, where.get("row"), str(one.get("code") or "invalid-syntax"), str(one.get("message")))


def read_node(ran: Ran) -> Iterable[Finding]:
    """Read `node --check`, which is run once for each file."""
    path, row = "", None
    for line in ran.stderr.splitlines():
        if found := _NODE.match(line):
            path, row = found[1].rpartition("/tree/")[2], int(found[2])
        elif path and "Error: " in line:
            yield _finding(path, row, "syntax", line.strip())
            path = ""


def read_gofmt(ran: Ran) -> Iterable[Finding]:
    for path in ran.stdout.splitlines():
        yield _finding(path, None, "gofmt", "it is not formatted as gofmt does")
    yield from _of_lines(ran.stderr, "syntax")


def read_vet(ran: Ran) -> Iterable[Finding]:
    return _of_lines(ran.stderr, "vet")


def read_rustc(ran: Ran) -> Iterable[Finding]:
    """Read `--error-format=json` of rustc, which is run once for each file."""
    for line in ran.stderr.splitlines():
        one = object_of(line)
        spans = [span for span in one.get("spans", ()) if span.get("is_primary")]
        if spans:
            rule = (one.get("code") or {}).get("code") or str(one.get("level"))
            yield _finding(str(spans[0]["file_name"]), spans[0]["line_start"], rule, str(one.get("message")))


_NODE = re2.compile(r"^(?:file://)?(/?\S+):(\d+)$")
_LINE = re2.compile(r"^(?:vet: )?(?:\./)?(\S+\.go):(\d+)(?::\d+)?: (.*)$")


def _of_lines(text: str, rule: str) -> Iterable[Finding]:
    for line in text.splitlines():
        if found := _LINE.match(line.strip()):
            yield _finding(found[1], int(found[2]), rule, found[3])


def _finding(path: str, line: int | None, rule: str, says: str) -> Finding:
    return {"path": path, "line": line, "rule": rule, "says": says[:500]}


EACH = 'command=$1; shift; for one in "$@"; do sh -c "$command" sh "$one"; done; true'
RUSTC = 'rustc --edition=2021 --crate-type=lib --emit=metadata --error-format=json -o /tmp/checked "$1"'
CHECKS: Mapping[Language, tuple[Check, ...]] = {
    "python": (
        Check(
            "ruff",
            lambda paths: ["ruff", "check", "--no-cache", "--exit-zero", "--output-format=json-lines", "--", *paths],
            read_ruff,
        ),
    ),
    "javascript": (Check("node", lambda paths: ["sh", "-c", EACH, "sh", 'node --check "$1"', *paths], read_node),),
    "go": (
        Check("gofmt", lambda paths: ["gofmt", "-l", *paths], read_gofmt),
        Check("go", lambda paths: ["sh", "-c", EACH, "sh", 'go vet "$1"', *paths], read_vet),
    ),
    "rust": (Check("rustc", lambda paths: ["sh", "-c", EACH, "sh", RUSTC, *paths], read_rustc),),
}


@CODE.operation(Effect.RUNS)
async def code_check(
    at: Workshop,
    paths: Annotated[
        tuple[WorkspacePath, ...], Field(max_length=MOST_FILES, description="Files; all of the project if none.")
    ] = (),
) -> Answer:
    """Check code without running it: ruff for Python, node --check, gofmt and go vet, rustc's lints. Says what was
    found where, and which languages no tool was there for."""
    found = [at.tree.clean(path) for path in paths] if paths else await at.look(_files, at)
    for path in found[: len(paths)]:
        at.tree.stat(path)
    findings, checked, missing = list[Finding](), list[str](), dict[str, str]()
    for language, checks in CHECKS.items():
        own = [path for path in found if SUFFIXES.get(PurePosixPath(path).suffix) == language]
        for check in checks if own else ():
            ran = await _in_sandbox(at, check.command(own), wants=check.wants)
            if ran is None:
                missing[language] = f"{check.wants} is not there"
            else:
                findings += check.read(ran)
        checked += [] if language in missing else own
    if not checked and not missing:
        raise ToolError("not_found", "there is no Python, JavaScript, Go or Rust to be checked")
    answer: Answer = {"ok": not findings and not missing, "findings": findings[:MOST_FINDINGS], "checked": checked}
    return answer | ({"missing": missing} if missing else {})


def _files(at: Workshop) -> list[str]:
    """Those of the project that have a checker. Raises ToolError where there are too many."""
    walked = at.tree.walk(".", at.policy.limits.entries, NOT_PROJECT | {"node_modules", "target"})
    found = [one.path for one in walked if one.kind == "file" and PurePosixPath(one.path).suffix in SUFFIXES]
    if len(found) > MOST_FILES:
        raise ToolError(
            "limit", f"there are {len(found)} files, and at most {MOST_FILES} are checked at once: name some"
        )
    return found


async def _in_sandbox(at: Workshop, command: list[str], *, wants: str = "", seconds: float | None = None) -> Any:
    """Run it over a copy of the project; None where `wants`, the program that it needs, is not there."""
    tests = at.policy.tests
    mounts = {str(folder): folder for folder in tests.mounts}
    path = [*tests.path, "/usr/local/bin", "/usr/bin", "/bin"]
    if wants == "ruff" and (ruff := find_ruff()) is not None:
        mounts.setdefault(str(ruff.parent), ruff.parent)
        path.insert(0, str(ruff.parent))
    limits = limits_for(
        at.policy.limits.tree_bytes,
        tests.seconds if seconds is None else seconds,
        tests.memory_bytes,
        tests.processes,
        at.policy.limits.entries,
    )
    environment = {**GO, "PYTHONDONTWRITEBYTECODE": "1", **tests.environment, "PATH": ":".join(path)}
    there = ["sh", "-c", 'command -v -- "$0" >/dev/null || exit 127; exec "$@"', wants or "sh", *command]
    ran = await run_in_copy(at, Order(["/usr/bin/env", *there], limits, in_project, environment, mounts))
    return None if wants and ran.code == 127 else ran


def find_ruff() -> Path | None:
    """Find ruff beside this Python, or in the PATH."""
    found = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    return Path(found) if found else None


def _shorten(text: str) -> str:
    if len(text) <= HEAD + TAIL:
        return text
    return f"{text[:HEAD]}\n… {len(text) - HEAD - TAIL:,} characters left out …\n{text[-TAIL:]}"
