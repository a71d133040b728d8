"""The recorded history: operations, the schema of its tables, and how they are written and read."""
