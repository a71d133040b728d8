"""The text of docs/output.schema.json: a JSON Schema of what commands print with --json."""

import json

from harness.cli.output_schema import json_schema


def document() -> str:
    """Returns the text."""
    return json.dumps(json_schema(), indent=2) + "\n"
