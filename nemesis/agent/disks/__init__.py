"""Disk faults and power cuts on file systems in image files."""
