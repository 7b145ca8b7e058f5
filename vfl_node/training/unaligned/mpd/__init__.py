"""``mpd``: see ``spec.py``."""
