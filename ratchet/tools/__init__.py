"""The tools of the workbench as Ratchet offers them: over MCP, with a chained audit, and to an agent of its own."""
