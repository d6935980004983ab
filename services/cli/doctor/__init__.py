"""What `ratchet doctor` looks at, each check with its fix."""
