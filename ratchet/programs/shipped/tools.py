"""Run inside a sandbox: `serve` serves the tools of Ratchet over MCP on stdin and stdout, `agent` is our tool-agent.

`serve ROLE` serves those of a role, by its policy. Further arguments of `agent` are those of
`python -m ratchet.tools.agent`. What the tools did is written down in /tmp, outside of the workspace, and ends with the
sandbox: what counts is in the record of the run.
"""

import asyncio
import os
import sys
from pathlib import Path

AT = "/ratchet"
ROOT, POLICY, AUDIT = "/workspace", f"{AT}/policy.toml", "/tmp/ratchet-tools"


def agent(*given: str) -> int:
    from ratchet.tools.agent import main

    sys.argv = ["tool-agent", "--root", ROOT, "--policy", POLICY, "--audit", AUDIT, "--recorded", *given]
    return main()


def serve(role: str = "") -> int:
    """Serve the tools as `ratchet tools serve` does, which a runner's image does not have."""
    from ratchet.tools.audit import ToolAudit
    from ratchet.tools.recorded import RecordedToolbox, read_policy, recorder_client
    from ratchet.tools.server import build_server

    policy = read_policy(Path(POLICY)).for_role(role)
    recorder = recorder_client(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    toolbox = RecordedToolbox(Path(ROOT), policy, ToolAudit(Path(AUDIT)), recorder=recorder)
    asyncio.run(build_server(toolbox).run_stdio_async())
    return 0


if __name__ == "__main__":
    sys.path.insert(0, f"{AT}/packages")
    raise SystemExit((agent if sys.argv[1] == "agent" else serve)(*sys.argv[2:]))
