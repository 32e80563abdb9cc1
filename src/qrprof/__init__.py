"""qrprof: which kernel, if it were faster, would make the whole PyTorch program faster."""

__version__ = "0.1.0"
