"""Clients that speak to nodes."""
