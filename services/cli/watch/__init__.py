"""Asks for and shows what `ratchet watch` tells."""
