"""Many instances behind a gateway: what a tax of one instance is to them, by queue, router and load."""
