"""The HTTP process: OpenAI wire shapes in, server-sent events out. Talks to the engine by messages; never torch."""
