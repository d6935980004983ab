"""The fleet on one machine: what it consists of, how it is started, supervised, found again and stopped."""
