"""Tasks with a workspace in four languages: a bug, hidden cases, a hidden suite with its control, and the fix."""

from __future__ import annotations

import difflib
import json
from typing import Any

WRONG, RIGHT = {}, {}
WRONG["python"] = {
    "shop/__init__.py": "",
    "shop/price.py": "def total(price, count):\n    return price + count\n",
    "main.py": ("import sys\nfrom shop.price import total\nprint(total(*map(int, sys.stdin.read().split())))\n"),
}
WRONG["javascript"] = {
    "price.js": "function total(price, count) {\n  return price + count;\n}\nmodule.exports = { total };\n",
    "main.js": (
        "const { total } = require('./price.js');\n"
        "const [price, count] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\n"
        "console.log(JSON.stringify(total(price, count)));\n"
    ),
}
WRONG["go"] = {
    "go.mod": "module example.org/shop\n\ngo 1.19\n",
    "price.go": "package main\n\nfunc total(price int, count int) int {\n\treturn price + count\n}\n",
    "main.go": (
        'package main\n\nimport "fmt"\n\nfunc main() {\n\tvar price, count int\n\tfmt.Scan(&price, &count)\n'
        "\tfmt.Println(total(price, count))\n}\n"
    ),
}
WRONG["rust"] = {
    "price.rs": "pub fn total(price: i64, count: i64) -> i64 {\n    price + count\n}\n",
    "main.rs": (
        "mod price;\nfn main() {\n    let mut text = String::new();\n"
        "    std::io::Read::read_to_string(&mut std::io::stdin(), &mut text).unwrap();\n"
        "    let given: Vec<i64> = text.split_whitespace().map(|one| one.parse().unwrap()).collect();\n"
        '    println!("{}", price::total(given[0], given[1]));\n}\n'
    ),
}
PLACES = {"python": "shop/price.py", "javascript": "price.js", "go": "price.go", "rust": "price.rs"}
RIGHT = {
    language: {**files, PLACES[language]: files[PLACES[language]].replace("price + count", "price * count")}
    for language, files in WRONG.items()
}
COMMANDS: dict[str, list[str]] = {
    "python": ["python3", "main.py"],
    "javascript": ["node", "main.js"],
    "go": ["./shop"],
    "rust": ["./shop"],
}
BUILDS: dict[str, list[str]] = {"go": ["go", "build", "-o", "shop", "."], "rust": ["rustc", "-o", "shop", "main.rs"]}
SUITE_BUILDS = {"go": ["go", "test", "-vet=off", "-c", "-o", "t"], "rust": ["rustc", "--test", "-o", "t", "tests.rs"]}
SUITES: dict[str, tuple[str, str, list[str]]] = {
    "python": (
        "tests/test_price.py",
        "import unittest\nfrom shop.price import total\n\nclass Price(unittest.TestCase):\n"
        "    def test_total(self):\n        self.assertEqual(total(7, 5), 35)\n"
        "    def test_none(self):\n        assert total(9, 0) == 0\n",
        ["python3", "-m", "unittest", "tests.test_price.Price.{test}"],
    ),
    "javascript": (
        "test.js",
        "const assert = require('assert');\nconst { total } = require('./price.js');\n"
        "const tests = {\n  test_total: () => assert.strictEqual(total(7, 5), 35),\n"
        "  test_none: () => assert.strictEqual(total(9, 0), 0),\n};\ntests[process.argv[2]]();\n",
        ["node", "test.js", "{test}"],
    ),
    "go": (
        "price_test.go",
        'package main\n\nimport "testing"\n\nfunc Test_total(t *testing.T) {\n'
        "\tif total(7, 5) != 35 {\n\t\tt.Fatal()\n\t}\n}\n"
        "func Test_none(t *testing.T) {\n\tif total(9, 0) != 0 {\n\t\tt.Fatal()\n\t}\n}\n",
        ["./t", "-test.run", "^T{test}$"],
    ),
    "rust": (
        "tests.rs",
        "mod price;\n#[test]\nfn test_total() {\n    assert_eq!(price::total(7, 5), 35);\n}\n"
        "#[test]\nfn test_none() {\n    assert_eq!(price::total(9, 0), 0);\n}\n",
        ["./t", "--exact", "{test}"],
    ),
}


def patch(language: str) -> str:
    """Return the patch that mends the bug."""
    place = PLACES[language]
    before, after = (files[language][place].splitlines(keepends=True) for files in (WRONG, RIGHT))
    return "".join(difflib.unified_diff(before, after, f"a/{place}", f"b/{place}"))


def control(text: str) -> str:
    return (
        text.replace("35", "36")
        .replace("(9, 0), 0", "(9, 0), 1")
        .replace("0) == 0", "0) == 1")
        .replace("0) != 0", "0) != 1")
    )


def suite(language: str, **more: Any) -> dict[str, Any]:
    place, text, command = SUITES[language]
    tests = ["test_total", "test_none"] if language != "go" else ["est_total", "est_none"]
    return {
        "command": command,
        "tests": tests,
        "build": SUITE_BUILDS.get(language),
        "files": {place: text},
        "control": {place: control(text)},
        **more,
    }


def cases(language: str) -> list[dict[str, Any]]:
    command = COMMANDS[language]
    return [{"command": command, "stdin": stdin, "expected": value} for stdin, value in (("8 9", 72), ("6 7", 42))]


def task(language: str, *, with_cases: bool = True, with_suite: bool = True, **more: Any) -> dict[str, Any]:
    plan: dict[str, Any] = {"language": language, "limits": {"wall_s": 60.0, "memory_mib": 2048, "processes": 256}}
    if with_cases:
        plan["cases"] = cases(language)
        if language in BUILDS:
            plan["build"] = BUILDS[language]
    if with_suite:
        plan["suite"] = suite(language)
    return {
        "input": "total() is wrong: mend it.",
        "workspace": {"files": WRONG[language]},
        "reference": patch(language),
        "criteria": json.dumps({"tests": {**plan, **more}}),
    }
