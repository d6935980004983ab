"""Pure comparison of an answer with its reference."""
