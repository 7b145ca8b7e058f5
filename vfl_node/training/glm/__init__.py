"""Generalised linear models under Paillier encryption: genuine-with-dummy training, whatever their loss."""
