"""What a cluster of real processes does for a real client (librdkafka) on loopback."""
