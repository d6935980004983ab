"""Run inside a sandbox: `serve` serves the tools of Ratchet over MCP on stdin and stdout, `agent` is our tool-agent.

Further arguments are those of `ratchet tools serve` and of `python -m ratchet.tools.agent`. What the tools did is
written down in /tmp, outside of the workspace, and ends with the sandbox: what counts is in the record of the run.
"""

import sys

AT = "/ratchet"
GIVEN = ["--root", "/workspace", "--policy", f"{AT}/policy.toml", "--audit", "/tmp/ratchet-tools"]


def main() -> int:
    what, *rest = sys.argv[1:]
    sys.path.insert(0, f"{AT}/packages")
    if what == "agent":
        from ratchet.tools import agent

        sys.argv = ["tool-agent", *GIVEN, *rest]
        return agent.main()
    from ratchet.cli.__main__ import main as ratchet

    sys.argv = ["ratchet", "tools", what, *GIVEN, *rest]
    ratchet()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
