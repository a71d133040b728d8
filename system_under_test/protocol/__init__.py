"""Kafka's messages and codecs. The only place that imports `kio`."""
