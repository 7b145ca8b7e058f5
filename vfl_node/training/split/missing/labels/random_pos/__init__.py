"""A class as frequent as it is among the real labels."""
