"""The privacy loss beside the task's: what the next embeddings tell, not those that leave."""
