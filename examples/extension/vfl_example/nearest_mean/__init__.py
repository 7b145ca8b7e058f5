"""A trainer in two messages an epoch: a row belongs to the class whose mean is nearer."""
