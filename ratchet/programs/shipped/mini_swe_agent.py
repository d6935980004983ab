"""The program `mini-swe-agent`: run inside a sandbox, the task on stdin; its answer is what the agent submits.

What the agent shows of its work goes to stderr. One that does not come to submit anything has failed.
"""

import json
import subprocess
import sys
from pathlib import Path

TRAJECTORY = Path("/tmp/trajectory.json")
OPTIONS = ("-c", "mini_textbased.yaml", "--model-class", "litellm_textbased", "-m", "openai/any", "-y")


def main() -> int:
    given = (*OPTIONS, "--exit-immediately", "-o", str(TRAJECTORY), "-t", sys.stdin.read())
    ran = subprocess.run(
        [sys.executable, "-m", "minisweagent.run.mini", *given],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        check=False,
    )
    try:
        ended = json.loads(TRAJECTORY.read_text(encoding="utf-8"))["info"]
    except (OSError, ValueError, KeyError):
        return ran.returncode or 1
    sys.stdout.write(f"{ended.get('submission') or ''}\n")
    return 0 if ended.get("exit_status") == "Submitted" else 1


if __name__ == "__main__":
    sys.exit(main())
