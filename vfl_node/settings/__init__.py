"""What one party's owner says: its node, tables, limits and protection. Nothing of it crosses the wire."""
