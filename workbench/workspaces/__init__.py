"""The files that tasks are about: read once, kept as they were, and compared with what an answer left of them."""
