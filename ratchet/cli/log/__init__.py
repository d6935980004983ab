"""The log of answers, for people and for `ratchet result`."""
