"""The journal beside one fdatasync for each append, and its reader beside JSON line by line."""
