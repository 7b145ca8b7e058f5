"""Linear regression under encryption: the generalised linear model of numbers."""
