"""Normal noise in proportion to the longest gradient of the batch."""
