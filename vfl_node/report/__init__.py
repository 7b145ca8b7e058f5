"""What one party keeps of a job for people and programs: ``report.json`` and ``report.html``."""
