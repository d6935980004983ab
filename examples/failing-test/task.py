"""Prints the task as a line of JSON: the repository as its workspace, and hidden tests that no program sees."""

import json
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parent / "repository"
HIDDEN = [(250, 3, 750), (250, 9, 2250), (250, 10, 2250), (100, 20, 1800), (100, 25, 2300), (70, 99, 6300)]

files = {str(path.relative_to(REPOSITORY)): path.read_text() for path in sorted(REPOSITORY.rglob("*.py"))}
cases = [{"function": "total", "args": [price, count], "expected": cents} for price, count, cents in HIDDEN]
task = {
    "input": "tests/test_price.py fails. Mend shop/price.py.",
    "workspace": {"files": files},
    "criteria": json.dumps({"tests": {"language": "python", "file": "shop/price.py", "cases": cases}}),
    "samples": 8,
}
sys.stdout.write(json.dumps(task) + "\n")
