"""Apache Kafka (KRaft) as system under test: its versions, its jars, and what a node of it is."""
