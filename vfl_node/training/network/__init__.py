"""What every trainer of a network of two halves is made of: the loop, the place of a half in it, and the active party alone."""
