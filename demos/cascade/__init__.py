"""The demo of a small model that takes over from a big one by proof."""
