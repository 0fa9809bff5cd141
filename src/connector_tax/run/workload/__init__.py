"""What is sent and when: arrivals, load patterns, sessions, prompts, and the protocol of a cell; no clock, no
socket."""
