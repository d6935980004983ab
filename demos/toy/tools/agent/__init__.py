"""An agent with tools, as anybody would write one for OpenAI's chat completions; and the process that records it."""
