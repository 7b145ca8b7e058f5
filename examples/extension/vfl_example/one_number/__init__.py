"""A trainer in one message each way: a line through one number of each row."""
