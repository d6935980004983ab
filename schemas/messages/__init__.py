"""What goes over the queues, a module a message."""
