"""The partition log on one replica: segments, leader epochs, recovery, checkpoints."""
