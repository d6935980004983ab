"""The ways to ask a model over HTTP, for both fronts: OpenAI's chat completions and responses, Anthropic's messages."""
