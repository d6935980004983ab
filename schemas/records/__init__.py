"""What is kept on disk, a module a record."""
