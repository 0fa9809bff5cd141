"""What one cell says by itself: the definitions that measuring and reading share."""
