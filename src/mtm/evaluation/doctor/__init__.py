"""Which episodes of a data set are faulty: checks of the numbers, and how surprising they are."""
