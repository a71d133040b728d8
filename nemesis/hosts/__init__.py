"""How each fault is injected on hosts, through their agents."""
