"""Embeddings estimated from aligned rows that are alike, anew in each batch."""
