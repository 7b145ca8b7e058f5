"""Defences: what a party changes in the tensors that it sends, so that attacks on them get less.

A defence is a class in ``specs.py`` with its keys in the node's settings and its words, which imports no torch, and a
:class:`~vfl_node.privacy.defences.defence.Defence` in a file of its family. :mod:`vfl_node.settings.defences` has its
name. The owner chooses defences in the node's settings. They change no field of a job, and no peer is told of them.
"""
