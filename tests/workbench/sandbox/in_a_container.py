"""Every attack, from inside a sandbox in a container of ours: `python -m tests.workbench.sandbox.in_a_container`.

In the image of the runner or the scorer, with these tests mounted, under the profiles that ship. It opens the sandbox
as the service does, tries each attack in it and, as a control, in the container itself; it prints what came of each,
and exits with 1 if any got through. What fails in the container too is refused by the container already.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.workbench.sandbox import attacks
from tests.workbench.sandbox.targets import targets
from workbench.sandbox.job import End, Job
from workbench.sandbox.limits import MIB, Limits
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings

SOURCE = Path(attacks.__file__).read_text()
LIMITS = Limits(wall_s=20, cpu_s=10, memory_bytes=192 * MIB, processes=16, workspace_bytes=4 * MIB, file_bytes=16 * MIB)
NAMES = sorted(
    name
    for name, value in vars(attacks).items()
    if callable(value) and value.__module__ == attacks.__name__ and not name.startswith("_")
    if name not in ("call", "done", "main")
)


def main() -> int:
    sandbox = Sandbox.open(SandboxSettings())
    sys.stdout.write(f"{sandbox.facts.says}\n")
    through, works_outside = [], 0
    with targets(Path("/tmp")) as target:
        for name in NAMES:
            attack = ["python3", "-I", "-S", "-c", SOURCE, name, json.dumps(target)]
            control = subprocess.run(attack, cwd="/tmp", capture_output=True, text=True, timeout=60, check=False)
            result = sandbox.run_blocking(Job(attack, limits=LIMITS))
            said = result.stdout.decode(errors="replace")
            held = said.startswith("held:") or result.end in (End.MEMORY, End.SIGNALLED)
            works_outside += control.stdout == "THROUGH"
            through += [] if held and "THROUGH" not in said else [name]
            sys.stdout.write(f"{name}: {said.strip() or result.says}; in the container {control.stdout.strip()}\n")
    says = f"{len(NAMES)} attacks, {works_outside} of which work in the container"
    sys.stdout.write(f"{says}; through: {', '.join(through) or 'none'}\n")
    return 1 if through else 0


if __name__ == "__main__":
    sys.exit(main())
