"""Harbor task folders as tasks of the fleet."""
