"""The terminal UI: the same facts as the commands print, with one selection carried through all views."""
