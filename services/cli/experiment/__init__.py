"""What `ratchet experiment` reads, draws and replays."""
