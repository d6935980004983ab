"""A task that takes tools, and the tiny model that solves some of it: read, follow a pointer, add, write, say."""
