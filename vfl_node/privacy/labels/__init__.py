"""What a passive party can read of labels from the gradients that it gets, and from what its embeddings became by them."""
