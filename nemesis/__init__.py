"""What can go wrong: faults, their targets, their schedules."""
