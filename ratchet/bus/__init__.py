"""Messages between processes: the protocol, the queues, the retry policy, and a double without a broker."""
