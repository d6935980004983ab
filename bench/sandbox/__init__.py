"""A sandboxed Python beside a plain one: how long it takes to start, and how many run in a second."""
