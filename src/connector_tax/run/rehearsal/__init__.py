"""A campaign in virtual time: the modelled engine, the real schedules, the very same artifact files."""
