"""A class drawn anew in each step, as the model itself predicts."""
