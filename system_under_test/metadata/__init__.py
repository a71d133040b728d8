"""The cluster's metadata: records, the image they add up to, and what changed between two images."""
