"""Drill-downs: what one cell's raw files hold, drawn over time, inside of ``report.html``."""
