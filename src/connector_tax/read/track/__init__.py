"""Many campaigns: taxes over time, and where their level changed."""
