"""The messages of the queues, a module a message."""
