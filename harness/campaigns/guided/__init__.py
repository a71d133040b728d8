"""Guided search: what runs reached, which runs were new, and mutations of those."""
