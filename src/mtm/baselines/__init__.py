"""Other learners on the same data, to compare with."""
