"""What a job will cost, before it is submitted or begins."""
