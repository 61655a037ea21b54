"""Faults on purpose: kills, bad disks, bad files, bad numbers, several hosts, load.

`make torture` prints a table of cases and outcomes and writes JSON; the tests call the same
functions with few cases. What is promised, and the counts: docs/reliability.md.
"""
