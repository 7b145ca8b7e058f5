"""Statistics of columns over the records that all parties have, before anybody trains a model."""
