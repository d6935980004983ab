"""The MCP server of a service: tools, resources and prompts, each of them calls of the service's own REST API."""
