"""Private set intersection: both parties learn which records they share, and number these in one order."""
