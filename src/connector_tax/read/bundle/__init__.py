"""A campaign as one archive that a reviewer can check and compute again: packed, verified, reproduced."""
