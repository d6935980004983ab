"""The keys folder, lifetimes, and what the audit says: behind `ratchet token` and `ratchet audit`."""
