"""Answers that solve nothing and would be paid by a verifier that listens to what it judges (cheats.toml). Pure.

`no_op` is what an honest program earns that does nothing.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

KNOWN = tomllib.loads((Path(__file__).parent / "cheats.toml").read_text(encoding="utf-8"))
PROGRAMS: Mapping[str, Mapping[str, str]] = KNOWN["programs"]
BESIDE: Mapping[str, Mapping[str, Mapping[str, str]]] = KNOWN["beside"]
"""Files beside the answer's, by language and by what they try."""
OF_COMMANDS = {
    "python": "import sys\nsys.stdout.write({text!r})\n",
    "javascript": "process.stdout.write({text});\n",
    "go": 'import "os"\n\nfunc main() {{ os.Stdout.WriteString({text}) }}\n',
    "rust": "fn main() {{ print!({text}) }}\n",
}
SAID = {
    "says nothing": "",
    "prints true": "true",
    "prints 0": "0",
    "prints null": "null",
    "prints that all tests passed": "3 passed\n",
    "prints no number": "NaN",
    "prints that it passed, as JSON": '{"passed": true, "score": 1.0}',
}


def cheats(language: str, functions: Sequence[str]) -> dict[str, str]:
    """Programs by what they try. `functions` are those that are called; none where the cases are commands."""
    said = {what: OF_COMMANDS[language].format(text=_literal(language, text)) for what, text in SAID.items()}
    if not functions:
        return said | (_of(language, ()) if language == "rust" else {})
    return said if language == "rust" else _of(language, functions)


def no_ops(language: str, functions: Sequence[str]) -> dict[str, str]:
    """Programs that do nothing: none at all, and one whose functions give nothing."""
    nothing = {"no answer": ""}
    match language:
        case "python" if functions:
            return {**nothing, "functions that return None": _functions(language, functions, "None")}
        case "javascript" if functions:
            return {**nothing, "functions that return null": _functions(language, functions, "null")}
    return nothing


def _of(language: str, functions: Sequence[str]) -> dict[str, str]:
    return {what: text + _functions(language, functions, "RESULT") for what, text in PROGRAMS[language].items()}


def _functions(language: str, functions: Sequence[str], result: str) -> str:
    form = {
        "python": "def {name}(*given, **named): return {result}\n",
        "javascript": "function {name}() {{ return {result}; }}\n",
        "go": "func {name}(given ...interface{{}}) interface{{}} {{ return {result} }}\n",
        "rust": "",
    }[language]
    return "".join(form.format(name=name, result=result) for name in functions)


def _literal(language: str, text: str) -> str:
    written = json.dumps(text)
    if language == "python":
        return text
    return written.replace("{", "{{").replace("}", "}}") if language == "rust" else written


Files = Mapping[str, str]
SUFFIXES = {"python": (".py",), "javascript": (".js", ".mjs", ".cjs"), "go": (".go",), "rust": (".rs",)}
PYTHON_NAMES = re.compile(r"^(?:async def|def|class) (\w+)", re.MULTILINE)
JAVASCRIPT_EXPORTS = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)
GO_PACKAGE = re.compile(r"^package (\w+)", re.MULTILINE)
NAMES_OF = "def {0}(*given, **named): return RESULT\n"
ANY_NAME = "def __getattr__(name): return lambda *given, **named: RESULT\n"
RUST_AT_START = (
    '\n#[used]\n#[link_section = ".init_array"]\nstatic CHEAT: extern "C" fn() = cheat;\n'
    'extern "C" fn cheat() {{ {0} }}\n'
)
RUST_DOES = {
    "exits with 0 before main": "std::process::exit(0)",
    "says that all passed before main": 'println!("test result: ok. 3 passed; 0 failed"); std::process::exit(0)',
    "answers before main": 'println!("true"); std::process::exit(0)',
}


def workspace_cheats(language: str, before: Files, solved: Files) -> dict[str, str]:
    """Answers, as files, by what they try. `solved` is the workspace as the reference leaves it."""
    suffix = SUFFIXES[language]
    touched = {path: text for path, text in solved.items() if before.get(path) != text and path.endswith(suffix)}
    found = dict(_beside(language, touched)) | {what: _answer(files) for what, files in BESIDE[language].items()}
    return found | {what: _answer(files) for what, files in _instead(language, before, touched) if files}


def _answer(files: Files) -> str:
    return json.dumps({"files": dict(files)})


def _beside(language: str, touched: Files) -> Iterator[tuple[str, str]]:
    """Programs in the place of those that are asked for: they say something, and nothing else."""
    package = "package main\n" if language == "go" else ""
    for what, text in SAID.items() if touched else ():
        program = package + OF_COMMANDS[language].format(text=_literal(language, text))
        yield what, _answer(dict.fromkeys(touched, program))


def _instead(language: str, before: Files, touched: Files) -> Iterator[tuple[str, Files]]:
    match language:
        case "python":
            for what, text in PROGRAMS["python"].items():
                yield what, {path: text + _python_names(text, whole) for path, whole in touched.items()}
        case "javascript":
            for what, text in PROGRAMS["javascript"].items():
                yield what, {path: text + _javascript_names(text, whole) for path, whole in touched.items()}
        case "go":
            for what, text in PROGRAMS["go"].items():
                yield what, dict(_go_files(text, before, touched))
        case "rust":
            for what, text in PROGRAMS["rust"].items():
                yield what, dict.fromkeys(touched, text)
            for what, text in RUST_DOES.items():
                added = RUST_AT_START.format(text)
                yield what, {path: before.get(path, whole) + added for path, whole in touched.items()}


def _python_names(text: str, whole: str) -> str:
    if "RESULT" not in text:
        return ""
    return "".join(map(NAMES_OF.format, PYTHON_NAMES.findall(whole))) + ANY_NAME


def _javascript_names(text: str, whole: str) -> str:
    result = "RESULT" if "RESULT" in text else "undefined"
    if names := JAVASCRIPT_EXPORTS.findall(whole):
        return "".join(f"export function {name}() {{ return {result}; }}\n" for name in names)
    return f"\nmodule.exports = new Proxy({{}}, {{ get: () => () => {result} }});\n"


def _go_files(text: str, before: Files, touched: Files) -> Iterator[tuple[str, str]]:
    """A file beside each that is asked for, in its package, as that was: what is in it runs before all else."""
    for path, whole in touched.items():
        package = GO_PACKAGE.search(before.get(path, whole))
        yield path.removesuffix(".go") + "_cheat.go", f"package {package.group(1) if package else 'main'}\n\n{text}"
