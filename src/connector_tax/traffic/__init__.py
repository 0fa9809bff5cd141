"""Who may go when: arrival processes, and the protocol that turns arrivals into a cell."""
