"""A campaign in virtual time: the modelled engine, the real schedules, the same artifact files."""
