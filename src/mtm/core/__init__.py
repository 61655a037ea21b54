"""What everything stands on: errors, settings, files, locks, randomness; no torch, no data."""
