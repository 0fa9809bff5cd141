"""The documents under ``results/``, one module each: what may stand in them, and how they are read and
written."""
