"""Given these tokens, what are those? Queries, windows, encoders, relabelling."""
