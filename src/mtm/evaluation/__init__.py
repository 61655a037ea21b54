"""The capabilities of a run as numbers and as pictures."""
