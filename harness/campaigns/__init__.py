"""Many runs: comparisons and swarms, distributed over processes or Spark, and their statistics."""
