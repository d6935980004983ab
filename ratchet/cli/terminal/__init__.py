"""How every command writes, fails and exits."""
