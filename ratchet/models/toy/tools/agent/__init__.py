"""An agent with tools, as anybody would write one against OpenAI's chat completions; and the process that has it recorded."""
