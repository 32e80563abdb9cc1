"""What views are drawn with."""
