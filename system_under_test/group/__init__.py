"""Classic consumer groups (KIP-62, KIP-345, KIP-394): who is a member, who reads what, how far they are."""
