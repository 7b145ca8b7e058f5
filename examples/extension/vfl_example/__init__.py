"""One extension of vfl-node of each kind, as small as its contract allows."""
