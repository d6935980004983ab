"""The two models that need no download, and the task that they are made for."""
