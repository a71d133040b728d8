"""Spark plans that group rows and feed them to kernels."""
