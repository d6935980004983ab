"""What agents work with: 52 operations on files, git, tests, docker, http and databases, of one workspace.

`Toolbox` (toolbox.py) calls them: arguments validated, a policy for each, limits, errors that a model can act on, and
a chained audit. server.py offers them over MCP, agent.py is an agent that uses them.
"""
