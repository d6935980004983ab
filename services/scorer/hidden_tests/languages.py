"""How an answer is built and how a case of it is run, for each language. Pure.

The harness calls a function and writes its result where stdout was; what the answer prints goes to stderr. It runs
beside the answer and is as much the answer's as the answer itself: it knows the arguments, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from ratchet.sandbox.job import Job
from ratchet.sandbox.limits import MIB
from services.scorer.hidden_tests.plan import Case, Language, Plan

PROGRAM = "program"
"""What a build makes; commands of cases may call it."""
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

JAVASCRIPT = """
const fs = require("fs");
const asked = JSON.parse(fs.readFileSync(0, "utf8"));
const text = fs.readFileSync(asked.file, "utf8");
console.log = console.info = console.debug = console.error;
async function load() {
  if (/^\\s*export\\s/m.test(text)) {
    return (await import("data:text/javascript;base64," + Buffer.from(text).toString("base64")))[asked.function];
  }
  const module = { exports: {} };
  const name = asked.function;
  const tail = `\\n;return typeof ${name} === "undefined" ? module.exports["${name}"] : ${name};`;
  return new Function("module", "exports", "require", text + tail)(module, module.exports, require);
}
load().then((found) => found(...asked.arguments)).then((result) => {
  const written = JSON.stringify(result, (_, value) => {
    if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError("no finite number");
    return value;
  });
  if (written === undefined) throw new TypeError("nothing that JSON can hold");
  fs.writeSync(1, written);
});
"""

GO = """
package main

import (
	"encoding/json"
	"os"
	"reflect"
)

func main() {
	out := os.Stdout
	os.Stdout = os.Stderr
	var asked struct {
		Arguments []json.RawMessage `json:"arguments"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	function := reflect.ValueOf(FUNCTION)
	var given []reflect.Value
	kind := function.Type()
	for at, text := range asked.Arguments {
		var in reflect.Type
		if last := kind.NumIn() - 1; kind.IsVariadic() && at >= last {
			in = kind.In(last).Elem()
		} else {
			in = kind.In(at)
		}
		value := reflect.New(in)
		if err := json.Unmarshal(text, value.Interface()); err != nil {
			panic(err)
		}
		given = append(given, value.Elem())
	}
	result := function.Call(given)[0]
	if result.Kind() == reflect.Slice && result.IsNil() {
		result = reflect.MakeSlice(result.Type(), 0, 0)
	}
	written, err := json.Marshal(result.Interface())
	if err != nil {
		panic(err)
	}
	out.Write(written)
}
"""
GO_ENVIRONMENT = {
    "GOCACHE": "/tmp/cache",
    "GOPATH": "/tmp/path",
    "GO111MODULE": "off",
    "CGO_ENABLED": "0",
    "GOTOOLCHAIN": "local",
    "GOFLAGS": "-p=2",
}


def build(plan: Plan, files: Mapping[str, bytes], function: str | None) -> Job | None:
    """What makes `program` for the cases of a function, or of commands (None); None where nothing is built."""
    limits = plan.limits.as_limits()
    roomy = replace(
        limits,
        wall_s=max(120.0, limits.wall_s),
        cpu_s=max(60.0, limits.cpu_s),
        memory_bytes=max(1024 * MIB, limits.memory_bytes),
        processes=max(256, limits.processes),
        workspace_bytes=256 * MIB,
    )
    match plan.language:
        case "go":
            harness = {"ratchet_harness.go": GO.replace("FUNCTION", function).encode()} if function else {}
            sources = [plan.place, *harness]
            return Job(
                ["go", "build", "-o", PROGRAM, *sources],
                files=_with_package(files, plan.place) | harness,
                environment=GO_ENVIRONMENT,
                collect=[PROGRAM],
                limits=roomy,
            )
        case "rust":
            return Job(
                ["rustc", "--edition=2021", "-O", "-o", PROGRAM, plan.place],
                files=files,
                collect=[PROGRAM],
                limits=roomy,
            )
        case _:
            return None


def _with_package(files: Mapping[str, bytes], place: str) -> dict[str, bytes]:
    """An answer that is only a function gets the line that a program in Go begins with."""
    content = files.get(place, b"")
    lines = (line.strip() for line in content.splitlines())
    begins = any(line.startswith(b"package ") for line in lines)
    return {**files, place: content if begins else b"package main\n" + content}


def job_of(plan: Plan, case: Case, files: Mapping[str, bytes], program: bytes | None) -> Job:
    """One case as a process of its own."""
    present = {**files, PROGRAM: program} if program is not None else dict(files)
    executable = frozenset({PROGRAM} if program is not None else ())
    limits = plan.limits.as_limits()
    if case.command is not None:
        return Job(case.command, files=present, executable=executable, stdin=case.stdin.encode(), limits=limits)
    asked = {"file": plan.place, "function": case.function, "arguments": case.arguments}
    return Job(
        _harness(plan.language), files=present, executable=executable, stdin=json.dumps(asked).encode(), limits=limits
    )


def _harness(language: Language) -> list[str]:
    match language:
        case "python":
            return ["python3", "-I", "-c", PYTHON]
        case "javascript":
            return ["node", "-e", JAVASCRIPT]
        case _:
            return [f"./{PROGRAM}"]
