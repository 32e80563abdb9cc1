"""Recording a run: the parent that starts the program, and the recorder inside it."""
