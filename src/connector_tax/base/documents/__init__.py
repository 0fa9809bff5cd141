"""What is written to disk and read again, as types: one module for each document."""
