"""Finds the smallest run that shows a finding: `laststand shrink`, and the new findings of a night."""
