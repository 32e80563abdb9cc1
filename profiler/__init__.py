"""What happened: record a run, read a trace, state facts. No opinion lives here."""
