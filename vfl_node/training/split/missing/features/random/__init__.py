"""A random embedding with the mean and spread of real ones."""
