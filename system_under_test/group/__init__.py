"""Classic consumer groups (KIP-62, KIP-345, KIP-394): members, assignments and committed offsets."""
