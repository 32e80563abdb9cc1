"""Is a swap worth keeping in the real program: does it train the same, and is a step as much faster as was promised?"""
