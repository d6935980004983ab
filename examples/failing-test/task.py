"""Prints the task as a line of JSON: the repository as its workspace, and hidden cases that no program sees.

`keeps`: what worked before, and has to work still. The reference is for `ratchet verify` alone.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE / "repository"
EARNS, KEEPS = [(250, 10, 2250), (100, 20, 1800), (10, 30, 270), (100, 40, 3600)], [(250, 3, 750), (250, 9, 2250)]


def case(price: int, count: int, cents: int) -> dict:
    return {"function": "total", "arguments": [price, count], "expected": cents}


cases = [case(*one) for one in EARNS] + [case(*one) | {"keeps": True} for one in KEEPS]
task = {
    "input": "tests/test_price.py fails. Mend shop/price.py.",
    "workspace": {"files": {str(path.relative_to(REPOSITORY)): path.read_text() for path in REPOSITORY.rglob("*.py")}},
    "criteria": json.dumps({"tests": {"language": "python", "file": "shop/price.py", "cases": cases}}),
    "reference": (HERE / "mended.patch").read_text(),
    "samples": 8,
}
sys.stdout.write(json.dumps(task) + "\n")
