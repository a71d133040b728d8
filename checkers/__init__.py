"""What must hold: pure kernels, and the Spark jobs that feed them."""
