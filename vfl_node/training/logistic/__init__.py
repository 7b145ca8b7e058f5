"""Asymmetric logistic regression: genuine-with-dummy training under Paillier encryption."""
