"""What an agent generates with."""
