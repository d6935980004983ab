"""An engine in a process of its own, so that the model and the messages do not wait for each other's interpreter."""
