"""The client library beside a bare aio-pika publisher and consumer."""
