"""The compiled kernels, which are for x86-64; everything else stands in pyproject.toml."""

from platform import machine

from setuptools import setup

setup(cffi_modules=["native/build.py:ffibuilder"] if machine().lower() in ("x86_64", "amd64") else [])
