"""Sends the same requests to the reference system and to Apache Kafka, and compares the responses."""
