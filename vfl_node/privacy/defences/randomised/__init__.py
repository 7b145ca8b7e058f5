"""Labels that are answered at random, once: gradients are made of the answers alone."""
