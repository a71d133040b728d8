"""The text of docs/history.schema.json: a JSON Schema of one line of a history as JSON lines."""

import json

from harness.history.foreign.json_lines import json_schema


def document() -> str:
    """Returns the text."""
    return json.dumps(json_schema(), indent=2) + "\n"
