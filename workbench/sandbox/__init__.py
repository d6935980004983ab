"""Runs code that nobody vouches for: without a network, within limits, and gone when it is over.

`Sandbox.run` takes a `Job` (a command, files that go in, files that come out, limits) and gives a `Result` that says
how it ended and why. The scorer tests answers in it; a runner gives its programs one way out, a Unix socket.
"""
