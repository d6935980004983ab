"""What `ratchet eval` asks of the fleet, how it is held against each other, and what is shown of it."""
