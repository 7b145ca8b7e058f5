"""The class of the nearest rows of the batch whose label is real."""
