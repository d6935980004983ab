"""Run inside a sandbox: `serve` serves the tools of Ratchet over MCP on stdin and stdout, `agent` is our tool-agent.

`serve ROLE` serves those of a role, by its policy. Further arguments of `agent` are those of
`python -m ratchet.tools.agent`. The audit of the tools is the recorder's, outside of the sandbox.
"""

import asyncio
import os
import sys
from pathlib import Path

AT = "/ratchet"
ROOT, POLICY = "/workspace", f"{AT}/policy.toml"


def agent(*given: str) -> int:
    from ratchet.tools.agent import main

    sys.argv = ["tool-agent", "--root", ROOT, "--policy", POLICY, "--recorded", *given]
    return main()


def serve(role: str = "") -> int:
    """Serve the tools as `ratchet tools serve` does, which a runner's image does not have."""
    from ratchet.tools.recorded import RecordedToolbox, read_policy, recorder_client
    from ratchet.tools.server import build_server

    policy = read_policy(Path(POLICY)).for_role(role)
    recorder = recorder_client(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    toolbox = RecordedToolbox(Path(ROOT), policy, recorder=recorder)
    asyncio.run(build_server(toolbox).run_stdio_async())
    return 0


if __name__ == "__main__":
    sys.path.insert(0, f"{AT}/packages")
    raise SystemExit((agent if sys.argv[1] == "agent" else serve)(*sys.argv[2:]))
