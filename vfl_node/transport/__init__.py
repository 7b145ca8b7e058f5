"""Carries typed messages between two parties; protocol code sees only :class:`Channel`."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read when gRPC is imported; the owner gets causes as errors, not as log lines

os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
"""The thread that waits for what arrives reads the socket itself. gRPC's event engine hands it from thread to thread, which
took a sixth more CPU time and a fifth of a millisecond for a message and its answer."""
