"""The HTTP application of a service, and what stands before its routes."""
