"""The deterministic world: virtual time, simulated network, disks, clocks and processes."""
