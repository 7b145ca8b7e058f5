"""Private set intersection: both parties index the records that they share, and learn which these are."""
