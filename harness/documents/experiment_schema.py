"""The text of docs/experiment.schema.json: a JSON Schema of experiment files, for editors and other tools."""

import json

from harness.runs.experiment_file import json_schema


def document() -> str:
    """Returns the text."""
    return json.dumps(json_schema(), indent=2) + "\n"
