"""A package with a trainer that can serve: every record's prediction is the share of labels 1. And an alignment like PSI."""
