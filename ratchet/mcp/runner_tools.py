"""The runner's tool: what its programs are at."""

from __future__ import annotations

from ratchet.mcp.call import Call
from ratchet.mcp.tool_table import Effect, ToolTable
from schemas.api.rollouts import RunningRollouts

TOOLS = ToolTable("runner")


@TOOLS.tool("GET /v1/rollouts", RunningRollouts, "List a runner's rollouts", Effect.READS)
def running_rollouts() -> Call:
    """List this runner's rollouts that run now, with their calls of the model and tokens so far and the seconds that
    are left; how the newest that ended did, and why; and how many wait for their turn."""
    return Call()
