"""Readers: a trace file of some format in, a `Trace` out."""
