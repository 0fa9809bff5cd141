"""The open-loop load generator, which records when it sent and how accurately."""
