"""Fuzzy linkage: each record of the active party gets the passive party's records whose keys are most like its own."""
