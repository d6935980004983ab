"""Starts a service and ends it: HTTP for operators, the bus, and an orderly end on SIGTERM."""
