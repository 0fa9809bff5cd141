"""What is sent and when: arrivals, load patterns, sessions, prompts, cell protocol; no clock, no socket."""
