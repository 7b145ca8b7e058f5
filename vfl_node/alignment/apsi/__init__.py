"""Asymmetric private set intersection: both index an obfuscated set; only the active party learns which records are shared."""
