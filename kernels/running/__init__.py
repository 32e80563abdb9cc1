"""A person's program run with accepted swaps: the process that starts it, and what happens in it."""
