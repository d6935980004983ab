"""What the fleet keeps on disk: the append-only logs, and files that change atomically or under a lock."""
