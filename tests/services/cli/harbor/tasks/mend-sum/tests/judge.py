"""Half for a list, half for an empty one; nothing where a sum is wrong. The shop runs in a process of its own."""

import json
import subprocess
from pathlib import Path

ASK = "import sys; sys.path.insert(0, '/srv/work'); from shop.price import total; print(total({}))"


def total(prices):
    said = subprocess.run(["python3", "-I", "-c", ASK.format(prices)], capture_output=True, text=True, check=False)
    return said.stdout.strip()


lists = [([1, 2, 39], "42"), ([7], "7"), ([5, 5], "10")]
is_sum = all(total(prices) == right for prices, right in lists)
reward = 0.5 * is_sum + 0.5 * (is_sum and total([]) == "0")
Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": reward}))
