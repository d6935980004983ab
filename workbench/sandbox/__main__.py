"""`python -m workbench.sandbox`: whether sandboxes hold where this is typed; exits with 1, and what mends it, if not.

For containers: it asks for what a service in the same one would be told (RATCHET_SANDBOX_…).
"""

from __future__ import annotations

import sys

from workbench.sandbox.job import SandboxRefused
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings


def main() -> str | None:
    try:
        sandbox = Sandbox.open(SandboxSettings())
    except SandboxRefused as error:
        return str(error)
    sys.stdout.write(f"the sandbox holds: {sandbox.facts.says}\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
