"""Rows outside of the alignment are not used."""
