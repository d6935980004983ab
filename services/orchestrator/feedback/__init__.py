"""The application's own signal: checked, logged once, looked up."""
