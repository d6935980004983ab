"""Programs that come with Ratchet: their declarations, and what is sent into their sandboxes as text."""
