"""What one instance's tax means to a fleet behind a gateway, by queue, router and load."""
