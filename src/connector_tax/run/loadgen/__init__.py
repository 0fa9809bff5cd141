"""The open-loop load generator: truthful about when it sent, and about how truthful it was."""
