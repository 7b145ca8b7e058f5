"""``ssl``: see ``spec.py``."""
