"""How a person sees it: the command line and the terminal UI."""
