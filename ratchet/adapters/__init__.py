"""Adapters on disk and in the registry: published whole, checked, decided about, retired."""
