"""Histories that other tools recorded: read, paired and turned into tables or operations, without judging them."""
