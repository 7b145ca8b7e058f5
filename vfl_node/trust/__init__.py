"""Whom this node trusts, and how it came to: what parties sign, and pairing by a code that two owners tell each other."""
