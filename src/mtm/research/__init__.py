"""Baselines, collecting, and the tables and figures of the paper."""
