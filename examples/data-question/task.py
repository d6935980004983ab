"""Prints the task as a line of JSON: the dump of a database as its workspace, a question, and the right answer."""

import json
import sys
from pathlib import Path

task = {
    "input": "How many cents did customers from Bergen pay? shop.sqlite has the orders. Answer with the number alone.",
    "workspace": {"files": {"shop.sql": (Path(__file__).parent / "shop.sql").read_text()}},
    "reference": "5250",
    "samples": 8,
}
sys.stdout.write(json.dumps(task) + "\n")
