"""Checkers: pure kernels that judge histories, and the Spark jobs that feed them."""
