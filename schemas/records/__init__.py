"""The records on disk, a module a record."""
