"""Draws nine figures from ``aggregate.json``, in one style, with a reason for each one left out."""
