"""An endpoint in OpenAI's dialect for one rollout, in front of an engine that takes ids: unchanged agents, recorded."""
