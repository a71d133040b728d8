"""How each fault is injected in the simulation."""
