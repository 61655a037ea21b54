"""Names of the specialists; this module imports nothing."""

SPECIALISTS = ("saits", "brits", "csdi")
"""Of PyPOTS, in lower case."""
