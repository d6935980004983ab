"""`ratchet schema`: the contract as documents."""
