"""What a node shows over HTTP: health, metrics, jobs and reports."""
