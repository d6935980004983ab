"""Builds an answer and runs its cases, for each language. Pure.

The harness calls a function and writes its result where stdout was; what the answer prints goes to stderr. It runs
beside the answer and is as much the answer's as the answer itself: it knows the arguments, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from services.scorer.hidden_tests.plan import Case, Language, Plan
from workbench.sandbox.job import WORKSPACE, Job, TreeFile
from workbench.sandbox.limits import MIB, Limits

PROGRAM = "program"
"""The file that a build makes; commands of cases may call it."""
TOOLS: Mapping[Language, str] = {"python": "python3", "javascript": "node", "go": "go", "rust": "rustc"}

PYTHON = """
import importlib.util, json, os, sys
out = os.dup(1)
os.dup2(2, 1)
case = json.load(sys.stdin)
sys.path.insert(0, os.getcwd())
spec = importlib.util.spec_from_file_location("solution", case["file"])
module = importlib.util.module_from_spec(spec)
sys.modules["solution"] = module
spec.loader.exec_module(module)
result = json.dumps(getattr(module, case["function"])(*case["arguments"]), allow_nan=False)
with os.fdopen(out, "w") as file:
    file.write(result)
"""

HERE = Path(__file__).parent
JAVASCRIPT = (HERE / "harness.js").read_text(encoding="utf-8")
GO = (HERE / "harness.go").read_text(encoding="utf-8")
GO_ENVIRONMENT = {
    "GOCACHE": "/tmp/cache",
    "GOPATH": "/tmp/path",
    "GO111MODULE": "off",
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-p=2",
}


LOGS = "/tmp/logs"
SCRIPT = f"""
mkdir -p {LOGS}/verifier {LOGS}/agent {LOGS}/artifacts
bash /tests/test.sh > {LOGS}/verifier/test-stdout.txt 2>&1 < /dev/null
for name in reward.txt reward.json; do
    [ -f {LOGS}/verifier/$name ] && exec head -c 65536 {LOGS}/verifier/$name
done
tail -c 300 {LOGS}/verifier/test-stdout.txt >&2
exit 1
"""

Files = Mapping[str, TreeFile]


def build(plan: Plan, files: Files, function: str | None) -> Job | None:
    """Return the job that makes `program` for a function's cases, or for commands (None); None where nothing is
    built."""
    match plan.language:
        case "go":
            harness = {"ratchet_harness.go": GO.replace("FUNCTION", function).encode()} if function else {}
            sources = [plan.place, *harness]
            return Job(
                ["go", "build", "-o", PROGRAM, *sources],
                tree=_with_package(files, plan.place),
                files=harness,
                environment=GO_ENVIRONMENT,
                collect=[PROGRAM],
                limits=roomy(plan, files),
            )
        case "rust":
            return Job(
                ["rustc", "--edition=2021", "-O", "-o", PROGRAM, plan.place],
                tree=files,
                collect=[PROGRAM],
                limits=roomy(plan, files),
            )
        case _:
            return None


def own_build(plan: Plan, command: Sequence[str], files: Files) -> Job:
    """Return the job of the task's own command; all that it makes is kept."""
    return Job(
        command,
        tree=files,
        environment=GO_ENVIRONMENT if plan.language == "go" else {},
        collect_tree=True,
        limits=roomy(plan, files),
    )


def roomy(plan: Plan, files: Files) -> Limits:
    limits = limits_of(plan, files)
    return replace(
        limits,
        wall_s=max(120.0, limits.wall_s),
        cpu_s=max(60.0, limits.cpu_s),
        memory_bytes=max(1024 * MIB, limits.memory_bytes),
        processes=max(256, limits.processes),
        workspace_bytes=192 * MIB + limits.workspace_bytes,
        collected_bytes=64 * MIB + limits.collected_bytes,
    )


def limits_of(plan: Plan, files: Files) -> Limits:
    """The plan's, with room for the files beside what a run makes."""
    limits, size = plan.limits.as_limits(), sum(len(file.content) for file in files.values())
    return replace(
        limits,
        workspace_bytes=limits.workspace_bytes + 2 * size,
        collected_bytes=limits.collected_bytes + 2 * size,
        files=limits.files + 2 * len(files),
    )


def _with_package(files: Files, place: str) -> Files:
    """An answer that is only a function gets the line that a program in Go begins with."""
    content = bytes(files[place].content) if place in files else b""
    lines = (line.strip() for line in content.splitlines())
    begins = any(line.startswith(b"package ") for line in lines)
    return {**files, place: TreeFile(content if begins else b"package main\n" + content)}


def job_of(plan: Plan, case: Case, files: Files, program: bytes | None) -> Job:
    """One case as a process of its own."""
    present = {**files, PROGRAM: TreeFile(program, executable=True)} if program is not None else files
    limits = limits_of(plan, present)
    if case.command is not None:
        return Job(case.command, tree=present, stdin=case.stdin.encode(), limits=limits)
    asked = {"file": plan.place, "function": case.function, "arguments": case.arguments}
    return Job(_harness(plan.language), tree=present, stdin=json.dumps(asked).encode(), limits=limits)


def job_of_test(plan: Plan, test: str, files: Files, program: bytes | None) -> Job:
    """One test of the suite, as a process of its own."""
    assert plan.suite is not None
    present = {**files, PROGRAM: TreeFile(program, executable=True)} if program is not None else files
    environment = GO_ENVIRONMENT if plan.language == "go" else {"PYTHONDONTWRITEBYTECODE": "1"}
    limits = roomy(plan, present) if plan.language in ("go", "rust") else limits_of(plan, present)
    return Job(plan.suite.command_of(test), tree=present, environment=environment, limits=limits)


def job_of_script(plan: Plan, files: Files) -> Job:
    """The script over the workspace. What it says the answer is worth comes out as stdout, else the end of what it
    printed as stderr."""
    assert plan.script is not None
    seen_at = plan.script.seen_at
    return Job(
        ["/bin/sh", "-c", SCRIPT],
        tree=files,
        environment={"PYTHONDONTWRITEBYTECODE": "1", **plan.script.environment},
        data={f"/tests/{path}": text.encode() for path, text in plan.script.files.items()},
        links={"/logs": LOGS} | ({seen_at: WORKSPACE} if seen_at else {}),
        directory=seen_at or WORKSPACE,
        limits=limits_of(plan, files),
    )


def _harness(language: Language) -> list[str]:
    match language:
        case "python":
            return ["python3", "-I", "-c", PYTHON]
        case "javascript":
            return ["node", "-e", JAVASCRIPT]
        case _:
            return [f"./{PROGRAM}"]
