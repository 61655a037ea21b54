"""Out of the lab: runs that others load, and a server that answers for one."""
