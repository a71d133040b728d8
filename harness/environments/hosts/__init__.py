"""A cluster on hosts with agents: containers, or machines over SSH."""
