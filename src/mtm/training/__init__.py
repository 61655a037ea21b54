"""The step, the loop, losses, validation: one scaffold for every trainer."""
