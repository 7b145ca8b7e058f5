"""Private set union: both parties index the union; neither learns which records are shared."""
