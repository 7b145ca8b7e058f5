"""Each cell by itself, anywhere in its column's range."""
