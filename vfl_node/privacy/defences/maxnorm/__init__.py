"""Noise along each gradient, so that all are as long as the longest on average."""
