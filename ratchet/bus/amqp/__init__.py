"""The bus's wire: AMQP 0-9-1 over pika, one subject a file. Services see ratchet/bus/protocol.py only."""
