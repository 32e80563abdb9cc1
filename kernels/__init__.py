"""What could be faster: the kernel library."""
