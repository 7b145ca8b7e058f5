"""Distance correlation between columns and embeddings, beside the task's loss."""
