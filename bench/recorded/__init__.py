"""Programs that are recorded, while what records them is killed."""
