"""What is sent: prompts of exact length that no prefix cache has seen, as ready bytes."""
