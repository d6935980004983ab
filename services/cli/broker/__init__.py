"""Users and rights on a broker, and declaring the queues for services that may not."""
