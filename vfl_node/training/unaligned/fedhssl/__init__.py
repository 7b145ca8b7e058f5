"""``fedhssl``: see ``spec.py``."""
