"""NATS JetStream as a system under test of laststand."""
