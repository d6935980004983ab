"""OpenAI's dialect, spoken and understood: shapes, errors, and a client of servers that speak it."""
