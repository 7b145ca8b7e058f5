"""Which way of aligning and training suits two tables: from answers to a job, its cost, and what each party learns."""
