"""What every command prints with --json: the envelope, and the keys of each result, as a JSON Schema.

A result has one of the forms of its command. What is in lists and objects is described in words only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.cli.output import ENVELOPE, SCHEMA
from harness.exit_codes import MEANINGS

_Keys = Mapping[str, tuple[str, str]]
"""JSON type ("string or null" for several) and meaning of each key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One form of a result.

    Attributes:
        keys: Keys that are always there.
        sometimes: Keys that may be there.
        is_open: Whether there may be more keys, because the result is that of a stored file or of another package.
    """

    keys: _Keys
    sometimes: _Keys
    is_open: bool = False

    def to_schema(self) -> dict[str, Any]:
        """Returns the JSON Schema of a result in an envelope without an error."""
        properties: dict[str, Any] = {
            name: _property(*entry) for name, entry in {**self.keys, **self.sometimes}.items()
        }
        if not self.is_open:
            # The keys of the envelope are described elsewhere; `additionalProperties` knows only those beside it.
            properties |= dict.fromkeys(ENVELOPE, True)
        return {
            "properties": properties,
            "required": list(self.keys),
            "additionalProperties": self.is_open,
        }


def _form(keys: _Keys, sometimes: _Keys | None = None, *, is_open: bool = False) -> Form:
    return Form(keys=keys, sometimes=sometimes or {}, is_open=is_open)


def _property(kind: str, meaning: str) -> dict[str, Any]:
    kinds = kind.split(" or ")
    return {"description": meaning, "type": kinds[0] if len(kinds) == 1 else kinds}


_RUN = _form(
    {
        "run": ("string", "id of the run"),
        "experiment": ("string", "name of the experiment"),
        "seed": ("integer", "root seed"),
        "verdict": ("string", "valid, invalid or unknown"),
        "reasons": ("array", "sentences on the verdict"),
        "unexcused_lost_records": ("integer", "acknowledged records that were lost without excuse"),
        "directory": ("string", "where the run is stored"),
        "report": ("string", "path of its report"),
    },
    is_open=True,
)
_EXPERIMENT = _form(
    {
        "name": (
            "string",
            "name of the experiment; the other keys are those of experiment.schema.json",
        ),
        "on": ("string", "its environment"),
        "cluster": ("object", "its nodes"),
        "workload": ("object", "what clients do"),
    },
    is_open=True,
)
_REPEAT = _form(
    {
        "replay_of": ("string", "id of the stored run"),
        "of": ("string", "where it ran: system, profile, environment"),
        "on": ("string", "environment of the repeats"),
        "finding": ("string", "what the stored run found"),
        "attempts": ("integer", "number of repeats"),
        "result": ("string", "confirmed k of n, not reproduced, or cannot be expressed"),
    },
    {
        "at": ("string", "where the repeats ran"),
        "confirmed": ("integer", "how many found the same"),
        "runs": ("array", "ids of the repeats"),
        "equal": ("array", "what is the same in both, as sentences"),
        "not_equal": ("array", "what cannot be the same, as sentences"),
        "reason": ("string", "why it cannot be expressed"),
    },
)
_FOREIGN = _form(
    {
        "file": ("string", "the file that was judged"),
        "format": ("string", "its format"),
        "model": ("string", "the model that it was judged with"),
        "verdict": ("string", "valid, invalid or unknown"),
        "reasons": ("array", "sentences on the verdict"),
        "anomalies": ("array", "one object per anomaly: id, count, judgement"),
        "unexcused_lost_records": ("integer", "acknowledged records that were lost without excuse"),
        "excused_lost_records": ("integer", "acknowledged records that were lost with an excuse"),
        "levels": (
            "object",
            "of a log: whether each level of promises holds, is broken, excused, allowed or unknown; otherwise "
            "empty",
        ),
        "operations": ("integer", "number of operations"),
        "not_interpreted": ("integer", "lines that were not interpreted"),
        "events_of_no_client": ("object", "number of events by process and function"),
        "operations_without_facts": ("object", "number of operations by reason"),
        "named_operations": ("array", "operations that sentences refer to, with their lines"),
        "longest_order": (
            "array",
            "operations in the longest order that the model allows, with the state after each; empty unless a "
            "model did not find the history valid",
        ),
    }
)
_SELFTEST = _form(
    {
        "directory": ("string", "the run"),
        "plants": ("array", "one object per planted anomaly, with its outcome"),
    },
    is_open=True,
)
_CAMPAIGN = _form(
    {
        "arms": (
            "array",
            "one object per setting: runs, verdicts, losses, rates, and why it is unknown",
        ),
    },
    {
        "report": ("string", "path of the page"),
        "interrupted": ("boolean", "true if the campaign was interrupted"),
        "resume": ("string", "the command that continues it"),
    },
    is_open=True,
)
_NIGHT = _form(
    {},
    {
        "night": ("string", "name of the night"),
        "sentence": ("string", "the night in one sentence"),
        "runs": ("integer", "number of runs"),
        "findings": ("array", "new, open and known findings"),
        "jobs": ("array or object", "one object per job"),
        "directory": ("string", "where the night is stored"),
        "interrupted": ("boolean", "true if the night was interrupted"),
        "resume": ("string", "the command that continues it"),
    },
    is_open=True,
)
_NODE = _form(
    {
        "node": ("string", "name of the node"),
        "action": ("string", "what was done"),
        "state": ("string", "state of the node afterwards"),
    }
)

OUTPUTS: Mapping[str, tuple[Form, ...]] = {
    "reproduce": (
        _RUN,
        _form(
            {
                "scenario": ("string", "name of the scenario"),
                "on": ("string", "environment"),
                "profile": ("string", "profile"),
                "attempts": ("integer", "number of runs"),
                "with_loss": ("integer", "runs that lost acknowledged records"),
                "lost_records": ("integer", "number of these records"),
                "outcomes": ("object", "number of runs by outcome"),
                "as_predicted": ("integer", "runs with the predicted outcome"),
                "runs": ("array", "ids of the runs"),
            }
        ),
        _form(
            {
                "scenario": ("string", "name of the scenario"),
                "on": ("string", "environment"),
                "columns": ("array", "names of the columns of the matrix"),
                "rows": ("array", "one object per variant, with the cells"),
                "cells": ("integer", "number of runs"),
                "as_predicted": ("integer", "runs with the predicted outcome"),
                "report": ("string", "path of the page"),
            }
        ),
        _form(
            {
                "variant": ("string", "the bug"),
                "system": ("string", "system and version"),
                "request": ("string", "the request that was sent"),
                "outcomes": ("array", "outcome of each attempt"),
                "predicted": ("string", "predicted outcome"),
                "is_as_predicted": ("boolean", "whether all were as predicted"),
            }
        ),
    ),
    "new": (_form({"experiment": ("string", "path of the file")}),),
    "run": (_RUN, _EXPERIMENT),
    "replay": (_RUN, _REPEAT),
    "check": (_RUN, _FOREIGN, _SELFTEST),
    "explain": (
        _form(
            {
                "run": ("string", "id of the run"),
                "verdict": ("string", "valid, invalid or unknown"),
                "anomalies": ("array", "the argument for each anomaly"),
            }
        ),
    ),
    "trace": (
        _form(
            {
                "trace": ("string", "path of the file"),
                "events": ("integer", "number of events in it"),
            }
        ),
    ),
    "report": (_form({"report": ("string", "path of the page")}),),
    "list": (
        _form(
            {
                "runs": ("array", "one object per run, newest first"),
                "campaigns": ("array", "one object per campaign, newest first"),
            }
        ),
    ),
    "serve": (_form({"url": ("string", "the address with its token")}),),
    "site": (
        _form(
            {
                "index": ("string", "path of the first page"),
                "pages": ("integer", "number of pages"),
            }
        ),
    ),
    "compare": (_CAMPAIGN,),
    "swarm": (_CAMPAIGN,),
    "shrink": (
        _form(
            {
                "of": ("string", "the run that was shrunk"),
                "signature": ("string", "signature of the finding that both runs show"),
                "title": ("string", "title of the finding"),
                "before": ("object", "size of the run"),
                "after": ("object", "size of the smallest run"),
                "runs": ("integer", "number of trials"),
                "ended": ("string", 'why the search ended early; "" if it did not'),
                "cause": ("string", "the cause, in one paragraph"),
                "run": ("string", "id of the smallest run"),
                "directory": ("string", "where it is stored"),
                "experiment": ("string", "path of its experiment file"),
                "seed": ("integer", "its seed"),
                "report": ("string", "path of its report"),
            },
            {
                "elsewhere": (
                    "object",
                    "repeats in another environment, and what was `changed` for it",
                )
            },
        ),
    ),
    "nightly": (_form({"plan": ("string", "the plan as TOML")}), _NIGHT),
    "conformance": (
        _form({"requests": ("array", "ids of the requests")}),
        _form(
            {
                "against": ("string", "system and version"),
                "profile": ("string", "profile of the reference system"),
                "cases": ("integer", "number of cases"),
                "requests": ("integer", "number of requests"),
                "same": ("integer", "cases without a difference"),
                "expected": ("array", "expected differences, with reasons"),
                "new": ("array", "unexpected differences"),
                "gone": ("array", "expected differences that did not occur"),
                "elapsed_s": ("number", "duration in seconds"),
            }
        ),
    ),
    "defects": (_form({"defects": ("array", "one object per defect")}),),
    "defects list": (_form({"defects": ("array", "one object per defect")}),),
    "defects run": (_form({"defects": ("array", "what each schedule found")}),),
    "defects search": (
        _form(
            {
                "defects": ("array", "one object per defect, with what each oracle needed"),
                "found": ("integer", "number of defects that were found"),
                "found_by_clients": ("integer", "number of defects found by what clients saw"),
                "found_by_stuck": ("integer", "number of others found because clients were stuck"),
                "harmful": ("integer", "number of defects that do clients harm"),
                "unknown_reasons": (
                    "array",
                    "why what was not found proves little: faults that rarely took effect, and unknown runs",
                ),
                "unfinished": ("integer", "number of searches that had not reached their limits"),
                "wrong": ("array", "what was found with the defect off"),
                "errors": ("array", "runs that the harness could not finish"),
                "runs": ("integer", "number of runs"),
                "runs_max": ("integer", "runs after which an oracle gives up"),
                "cpu_s_max": ("number", "seconds of processor time after which it gives up"),
                "first_seed": ("integer", "first seed of every defect"),
                "kind": ("string", "search"),
                "started": ("string", "when the search began"),
            },
            {
                "report": ("string", "path of the page"),
                "interrupted": ("boolean", "true if the search was interrupted"),
                "resume": ("string", "the command that continues it"),
            },
        ),
    ),
    "demo": (
        _form(
            {
                "runs": ("array", "summaries of the runs"),
                "compare": ("object", "result of the comparison"),
                "reports": ("array", "paths of the pages"),
                "as_predicted": ("boolean", "whether both runs had the predicted outcome"),
            }
        ),
    ),
    "doctor": (_form({"findings": ("array", "one object per item that was examined")}),),
    "cluster up": (
        _form(
            {
                "bootstrap": ("string", "addresses of the brokers"),
                "directory": ("string", "directory of the cluster"),
            },
            {"metrics": ("object", "URL of the metrics by node")},
        ),
    ),
    "cluster status": (
        _form(
            {
                "bootstrap": ("string", "addresses of the brokers"),
                "profile": ("string", "profile of the cluster"),
                "nodes": ("array", "one object per node"),
                "quorum": ("object or null", "state of the metadata quorum"),
                "partitions": ("array or null", "one object per partition"),
                "unavailable": ("object", "reason by name of a value that is null"),
            }
        ),
    ),
    "cluster down": (_form({"stopped": ("integer", "number of nodes that ran")}),),
    "cluster kill": (_NODE,),
    "cluster stop": (_NODE,),
    "cluster start": (_NODE,),
    "cluster pause": (_NODE,),
    "cluster resume": (_NODE,),
    "broker": (_form({}),),
    "bundle spark": (
        _form(
            {
                "bundle": ("string", "path of the archive"),
                "size_bytes": ("integer", "its size"),
                "folder": ("string", "where workers unpack it"),
                "python": ("string", "version of Python that workers need"),
                "platform": ("string", "platform that workers need"),
                "packages": ("object", "version by package"),
            }
        ),
    ),
    "image build": (
        _form(
            {
                "image": ("string", "name of the image"),
                "base": ("string or null", "name of its base image"),
            }
        ),
    ),
    "system fetch": (_form({"system": ("string", "name of the system")}, is_open=True),),
    "system list": (_form({"systems": ("array", "one object per version")}),),
    "reset": (
        _form(
            {
                "removed": ("object", "what was removed, by host"),
                "engine": ("string", "state of the Docker engine"),
                "problem": ("string", 'what could not be removed; "" if all was'),
            }
        ),
    ),
    "gc": (
        _form(
            {
                "dry_run": ("boolean", "whether nothing was removed"),
                "removed": ("array", "path, kind and size of what was removed"),
                "size_bytes": ("integer", "size of all of it"),
                "kept_failing": ("array", "failing runs that were kept"),
                "in_progress": ("array", "campaigns that another process runs"),
                "unknown": ("array", "files that laststand did not make"),
            }
        ),
    ),
    "completion": (
        _form({"shell": ("string", "the shell"), "script": ("string", "the script for it")}),
    ),
    "help": (_form({"of": ("string", "the command"), "help": ("string", "its help")}),),
}
"""The forms of every command's result, in the order of the help."""


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of what commands print with --json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Output of laststand with --json",
        "type": "object",
        "properties": {
            "schema": {"description": "version of this format", "const": SCHEMA},
            "command": {
                "description": 'words of the command; "" if there is no such command',
                "enum": [*OUTPUTS, *_families(), ""],
            },
            "exit_code": {
                "description": "; ".join(f"{code}: {text}" for code, text in MEANINGS.items()),
                "enum": list(MEANINGS),
            },
            "error": {
                "description": "why the command failed, in one sentence; null if the exit code is 0, 1 or 2",
                "type": ["string", "null"],
            },
        },
        "required": ["schema", "command", "exit_code", "error"],
        "allOf": [
            {
                "if": {"properties": {"exit_code": {"minimum": 254}}},
                "then": {"properties": {"error": {"type": "string", "minLength": 1}}},
                "else": {"properties": {"error": {"type": "null"}}},
            },
            *(_when_done(command, forms) for command, forms in OUTPUTS.items()),
        ],
    }


def _when_done(command: str, forms: tuple[Form, ...]) -> dict[str, Any]:
    """Returns that a command without an error prints one of its forms."""
    done = {"command": {"const": command}, "error": {"type": "null"}}
    return {
        "if": {"properties": done},
        "then": {"anyOf": [form.to_schema() for form in forms]},
    }


def _families() -> list[str]:
    """Returns the first words of commands that have several, which may stand alone by mistake."""
    words = dict.fromkeys(name.partition(" ")[0] for name in OUTPUTS if " " in name)
    return [word for word in words if word not in OUTPUTS]
