"""Tools for agents: operations on one workspace, each with checked arguments, limits, a policy and an audit.

Adapters to the fleet, such as the chained audit and the MCP server, lie in ratchet/tools.
"""
