"""``vfl-node doctor``: what is wrong on this machine, and on the line to a peer."""
