"""Gradients mixed in pairs and turned towards their mean."""
