"""``aggregate.json`` to nine figures; one file per figure, one style, a reason for each one left out."""
