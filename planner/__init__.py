"""What to do next: estimates, ranking and decisions, from the profiler's facts."""
