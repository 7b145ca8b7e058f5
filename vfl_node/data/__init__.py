"""One party's own table: its records, what identifies them, and the columns a model reads."""
