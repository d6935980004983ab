"""`ratchet mcp`: one MCP server over stdio for all services of a fleet."""
