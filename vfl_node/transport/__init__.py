"""Carries typed messages between two parties; protocol code sees only :class:`Channel`."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read when gRPC is imported; the owner gets causes as errors, not as log lines
