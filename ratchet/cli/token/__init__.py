"""`ratchet token`: keys, lifetimes, and tokens as they are given to a command."""
