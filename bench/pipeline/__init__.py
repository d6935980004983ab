"""The fleet's whole path beside the same number of hops done by bare pika, aio-pika and FastStream.

`python -m bench.pipeline` starts a private broker, lets the contestants take turns, and prints one table of medians.
"""
