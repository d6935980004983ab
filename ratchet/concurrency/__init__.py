"""What coroutines of one process wait with."""
