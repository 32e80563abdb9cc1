"""`python -m qrprof` is the console script `qrprof`."""

from qrprof.tui.cli import main

main()
