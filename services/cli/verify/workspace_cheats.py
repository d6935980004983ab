"""Cheats of a workspace: files in the place of those that the reference changes, and beside them. Pure.

Each is what an answer could leave that solves nothing and has whatever tests it say that all is well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from services.cli.verify.cheats import (
    GO_CHEATS,
    JAVASCRIPT_CHEATS,
    OF_COMMANDS,
    PYTHON_CHEATS,
    RUST_CHEATS,
    SAID,
)

Files = Mapping[str, str]
SUFFIXES = {"python": (".py",), "javascript": (".js", ".mjs", ".cjs"), "go": (".go",), "rust": (".rs",)}
PYTHON_NAMES = re.compile(r"^(?:async def|def|class) (\w+)", re.MULTILINE)
JAVASCRIPT_EXPORTS = re.compile(r"^export (?:async )?(?:function\*?|const|let|class) (\w+)", re.MULTILINE)
GO_PACKAGE = re.compile(r"^package (\w+)", re.MULTILINE)
NAMES_OF = "def {0}(*given, **named): return RESULT\n"
ANY_NAME = "def __getattr__(name): return lambda *given, **named: RESULT\n"
PASSES_ALL = (
    "import pytest\n\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    "    outcome = yield\n    report = outcome.get_result()\n    report.outcome, report.longrepr = 'passed', None\n"
)
EXITS = "import os\nos._exit(0)\n"
BESIDE: dict[str, dict[str, dict[str, str]]] = {
    "python": {
        "a conftest that passes everything": {"conftest.py": PASSES_ALL},
        "a conftest that exits": {"conftest.py": EXITS},
        "a module named unittest": {"unittest.py": EXITS},
        "a module named pytest": {"pytest.py": EXITS},
        "a module that Python imports by itself": {"sitecustomize.py": EXITS, "usercustomize.py": EXITS},
        "settings that run other tests": {"pytest.ini": "[pytest]\naddopts = --collect-only\n"},
    },
    "javascript": {
        "a package that exits": {"package.json": '{"main": "index.js", "scripts": {"test": "exit 0"}}'},
        "modules of its own": {"node_modules/assert/index.js": "module.exports = () => {};"},
    },
    "go": {"a module of its own": {"go.mod": "module cheat\n"}},
    "rust": {"a build script": {"build.rs": "fn main() { std::process::exit(0) }\n"}},
}
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
    for what, text in SAID.items():
        written = json.dumps(text)
        given = text if language == "python" else written.replace("{", "{{").replace("}", "}}")
        program = OF_COMMANDS[language].format(text=given if language != "go" else written)
        if language == "go":
            program = f"package main\n{program}"
        if touched:
            yield what, _answer(dict.fromkeys(touched, program))


def _instead(language: str, before: Files, touched: Files) -> Iterator[tuple[str, Files]]:
    match language:
        case "python":
            for what, text in PYTHON_CHEATS.items():
                yield what, {path: text + _python_names(text, whole) for path, whole in touched.items()}
        case "javascript":
            for what, text in JAVASCRIPT_CHEATS.items():
                yield what, {path: text + _javascript_names(text, whole) for path, whole in touched.items()}
        case "go":
            for what, text in GO_CHEATS.items():
                yield what, dict(_go_files(text, before, touched))
        case "rust":
            for what, text in RUST_CHEATS.items():
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
