"""Which way of aligning and training suits two tables: from an owner's answers to a job, its cost, and what each party learns."""
