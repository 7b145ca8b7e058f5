"""Logistic regression under encryption: the generalised linear model of classes."""
