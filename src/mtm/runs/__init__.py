"""A run is a directory: description, checkpoints, loading."""
