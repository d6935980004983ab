"""Grammars: the form that an answer must have, and the tokens that it allows next."""
