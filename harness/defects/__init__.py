"""Directed schedules: for each defect of the reference system the faults that show it, and nothing without it."""
