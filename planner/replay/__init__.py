"""The dependency graph of a recorded program, replayed with other durations."""
