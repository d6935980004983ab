"""A workbench for agents: sandboxes, trees of files, workspaces and tools. It knows nothing of the fleet.

Of the rest of Ratchet it imports the schemas alone.
"""
