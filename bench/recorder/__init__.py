"""What the recorder adds to an engine, beside other proxies in front of the same one."""
