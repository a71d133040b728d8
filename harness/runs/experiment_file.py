"""Experiments as TOML and as nested tables: read, checked, written, and described by a JSON Schema.

msgspec checks types and bounds. What it does not do is done here: a misspelt key gets a suggestion, and every
error is one sentence that names the file and the key.
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tomli_w

from harness.contracts.system import ElrSwitch, PropertyTaker, System, VersionedSystem
from harness.contracts.workload import WorkloadConfig
from harness.environments.registry import DEFAULT, ENVIRONMENTS
from harness.errors import UsageError, usage_errors_of
from harness.names import unknown_name
from harness.runs.experiment import (
    ClusterConfig,
    Experiment,
    NemesisConfig,
    TopicConfig,
    check_choice,
    given,
)
from harness.runs.key_descriptions import describe_keys
from harness.runs.space import (
    DEFAULT_KEY,
    EVERY,
    default_space,
    extremes,
    read_space,
    space_to_data,
)
from harness.systems.registry import REFERENCE, SYSTEMS
from nemesis.fault import Fault, fault_from_json
from nemesis.faults import FAULT_NAMES
from workloads.append import APPEND
from workloads.registry import WORKLOADS

TABLES: dict[str, type[Any]] = {
    "cluster": ClusterConfig,
    "topic": TopicConfig,
    "nemesis": NemesisConfig,
}
"""Tables of an experiment file whose keys are the fields of a class; `workload` and `schedule` are read apart."""

SPACES = (DEFAULT_KEY, "none")
"""What `--space` takes."""

NAME_KEY = "name"
CLIENT_KEY = "client"
ELR_KEY = "elr"
"""A key that only `vary` knows."""


def load(path: Path, **overrides: Any) -> Experiment:
    """Reads an experiment from a TOML file.

    Args:
        path: The file.
        overrides: Top-level values that replace those of the file, unless they are None. What concerns both
            together, such as an environment and its hosts, is checked afterwards.

    Raises:
        UsageError: The file is missing or not TOML (with the line), a key or value is wrong, or hosts are named
            for an environment without hosts.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no experiment file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the experiment file {path}: {error}") from None
    return loads(text, origin=str(path), default_name=path.stem, **overrides)


def loads(
    text: str, *, origin: str, default_name: str = "experiment", **overrides: Any
) -> Experiment:
    """Reads an experiment from TOML text; see `load`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{origin} is not valid TOML: {error}") from None
    data.setdefault("name", default_name)
    with usage_errors_of(origin):
        return check_space(_not_drawn(from_data(_overridden(data, overrides)), overrides))


def changed(experiment: Experiment, **overrides: Any) -> Experiment:
    """Returns the experiment with other top-level values, unless they are None; see `load`."""
    new = from_data(_overridden(to_data(experiment), overrides))
    return check_space(_not_drawn(new, overrides))


def _overridden(data: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    values = given(overrides)
    if "system" in values:
        _choose_system(data, {key: values.pop(key) for key in DECIDES_PROFILE if key in values})
    word = values.pop("space", None)
    if word is not None:
        check_choice("space", word, SPACES)
        data["space"] = {**data.get("space", {}), DEFAULT_KEY: EVERY} if word == DEFAULT_KEY else {}
    data.update(values)
    check_hosts_used(values.get("inventory"), str(data.get("on", DEFAULT)))
    return data


def check_hosts_used(hosts: str | None, on: str) -> None:
    """Refuses a file of hosts that the command line names for an environment without hosts.

    Args:
        hosts: The file; None or empty if there is none.
        on: The name of the environment; an unknown one is refused elsewhere.

    Raises:
        UsageError: The environment has no hosts.
    """
    if hosts and on in ENVIRONMENTS and not ENVIRONMENTS[on].needs_inventory:
        raise UsageError(f"--hosts is for --on ssh, not for {on}; leave it out, or add --on ssh")


def _not_drawn(experiment: Experiment, overrides: Mapping[str, Any]) -> Experiment:
    """Returns the experiment without draws of what the command line sets."""
    drawn = {key: draws for key, draws in experiment.space.items() if overrides.get(key) is None}
    return replace(experiment, space=drawn)


def check_space(experiment: Experiment) -> Experiment:
    """Returns the experiment if every seed can draw from its space.

    Raises:
        UsageError: A value of the space is wrong, or none is possible with other draws.
    """
    if experiment.space:
        for drawn in extremes(experiment.space, to_data(experiment)):
            with_drawn(experiment, drawn)
    return experiment


def with_drawn(experiment: Experiment, drawn: Mapping[str, Any]) -> Experiment:
    """Returns the experiment with drawn values and without a space.

    Args:
        experiment: With a space.
        drawn: Values by key, for example "topic.partitions".

    Raises:
        UsageError: The experiment cannot have such values.
    """
    data = to_data(experiment)
    data["space"] = {}
    for key, value in drawn.items():
        table, _, rest = key.partition(".")
        if not rest:
            data[key] = value
        elif table in data:
            data[table] = {**data[table], rest: value}
        if table == "features":
            data["profile"] = ""
    try:
        return from_data(data)
    except UsageError as error:
        values = ", ".join(f"{key}={value}" for key, value in drawn.items())
        raise UsageError(f"the space draws {values}: {error}") from None


def from_data(data: Mapping[str, Any]) -> Experiment:
    """Builds an experiment from nested tables; see `to_data`.

    Raises:
        UsageError: A key or value is wrong.
    """
    values = dict(data)
    _check_keys("experiment", values, [*_keys(Experiment), "workload"])
    for key, kind in TABLES.items():
        if key in values:
            values[key] = _table(key, values[key], kind)
    values |= _system(values)
    for key, read in OPEN_TABLES.items():
        if key in values:
            values[key] = read(key, values[key])
    system = SYSTEMS.get(values["system"])
    values["workload_name"], values["workload"] = _workload(values.get("workload", {}), system)
    if "schedule" in values:
        values["schedule"] = _schedule(values["schedule"])
    if "space" in values:
        values["space"] = _space(values, data)
    scalars = {key: value for key, value in values.items() if key in _scalar_keys()}
    _check_numbers("experiment", scalars)
    for key, value in scalars.items():
        values[key] = _convert(f"experiment.{key}", value, Experiment.__annotations__[key])
    return Experiment(**values)


def to_data(experiment: Experiment) -> dict[str, Any]:
    """Returns nested tables with every key, JSON- and TOML-compatible."""
    data: dict[str, Any] = {key: getattr(experiment, key) for key in _scalar_keys()}
    data["disabled_rules"] = list(experiment.disabled_rules)
    for key in OPEN_TABLES:
        data[key] = dict(getattr(experiment, key))
    for key in TABLES:
        data[key] = msgspec.to_builtins(getattr(experiment, key))
    data["workload"] = {
        NAME_KEY: experiment.workload_name,
        **msgspec.to_builtins(experiment.workload),
    }
    data["schedule"] = [fault.to_json() for fault in experiment.schedule]
    data["space"] = space_to_data(experiment.space)
    return data


def _space(values: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the space; the default space becomes explicit here, because later every key is set."""
    table = values["space"]
    drawn = read_space(table)
    word = table.get(DEFAULT_KEY, False)
    if word not in (True, False, EVERY):
        raise UsageError(
            f'space.default is {json.dumps(word, default=str)}; use true, false or "{EVERY}"'
        )
    if not word:
        return drawn
    fixed = {
        f"{name}.{key}"
        for name, content in data.items()
        if isinstance(content, Mapping)
        for key in content
    }
    system = SYSTEMS.get(values["system"])
    if isinstance(system, VersionedSystem):
        system = system.of_version(values.get("version") or system.default_version, {})
    default = default_space(
        system,
        environment=_convert("experiment.on", values.get("on", DEFAULT), str),
        profile=_convert("experiment.profile", values.get("profile", ""), str)
        or next(iter(system.profiles)),
        timings=_convert("experiment.timings", values.get("timings", "fast"), str),
        workload=type(values["workload"]),
        fixed=() if word == EVERY else {*fixed, *data},
    )
    return {**default, **drawn}


def dumps(experiment: Experiment) -> str:
    """Returns the experiment as TOML that `loads` reads back to an equal value."""
    return tomli_w.dumps(to_data(experiment))


def vary(experiment: Experiment, key: str, value: str) -> Experiment:
    """Returns the experiment with one key (dotted for tables) set from text, as `--vary` does.

    Args:
        experiment: What is varied.
        key: A key of an experiment, or `ELR_KEY`, which stands for those that switch eligible leader replicas.
        value: Its value.

    Raises:
        UsageError: There is no such key, or it cannot have that value.
    """
    if key == ELR_KEY:
        return _with_elr(experiment, value)
    data = to_data(experiment)
    data["space"] = {name: draws for name, draws in data["space"].items() if name != key}
    first, _, rest = key.partition(".")
    if first in OPEN_TABLES and rest:
        data[first][rest] = _parse_scalar(key, value, 0) if first == "features" else value
        return from_data({**data, "profile": ""})
    if key in DECIDES_PROFILE:
        _choose_system(data, split_system(value) if key == "system" else {"version": value})
        return from_data(data)
    table: dict[str, Any] = data
    *path, last = key.split(".")
    for part in path:
        if not isinstance(table.get(part), dict):
            raise UsageError(unknown_name("table of an experiment", part, data))
        table = table[part]
    if last not in table:
        raise UsageError(unknown_name("key of an experiment", key, _keys_to_vary(data)))
    table[last] = _parse_scalar(key, value, table[last])
    return from_data(data)


def _with_elr(experiment: Experiment, value: str) -> Experiment:
    """Returns the experiment with eligible leader replicas "on" or "off"."""
    system = experiment.system_under_test
    if value not in ("on", "off"):
        raise UsageError(f"{ELR_KEY} is {value!r}; choose off or on, as in --vary {ELR_KEY}=off,on")
    if not isinstance(system, ElrSwitch):
        raise UsageError(
            f"the system {experiment.system!r} has no eligible leader replicas to switch; vary another key"
        )
    data = to_data(experiment)
    data["space"].pop("profile", None)
    for key, new in system.elr_keys(experiment.profile, is_on=value == "on").items():
        data[key] = {**data[key], **new} if key in OPEN_TABLES else new
        if key in OPEN_TABLES:
            data["profile"] = ""
    return from_data(data)


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of an experiment file; the settings of third-party workloads are left open."""
    _, root, components = _schema_of(Experiment)
    properties = root["properties"]
    workload_name_key = properties.pop("workload_name")
    workloads = []
    for workload_name in WORKLOADS.built_in:
        reference, table, more = _schema_of(WORKLOADS.get(workload_name).config)
        components |= {**more, reference.rpartition("/")[2]: table}
        name_key = {"const": workload_name, "description": workload_name_key["description"]}
        table["properties"] = {NAME_KEY: name_key, **table["properties"]}
        table["additionalProperties"] = False
        if workload_name != APPEND.name:
            table["required"] = [NAME_KEY]
        workloads.append({"$ref": reference})
    others = {
        "type": "object",
        "properties": {NAME_KEY: {"not": {"enum": list(WORKLOADS.built_in)}}},
        "required": [NAME_KEY],
    }
    properties["workload"] = {
        "description": properties["workload"]["description"],
        "anyOf": [*workloads, others],
    }
    properties["space"] = {**properties["space"], **SPACE_SCHEMA}
    components.pop("Range", None)
    for kind in (*TABLES.values(), Fault):
        component = components[kind.__name__]
        component["additionalProperties"] = False
        _describe(component["properties"], kind)
    fault = components[Fault.__name__]
    del fault["properties"]["is_drawn"]
    fault["properties"]["fault"]["enum"] = list(FAULT_NAMES)
    fault["required"] = ["fault"]
    for item in components.values():
        # Class docstrings describe code, not keys of a file.
        item.pop("description", None)
        item.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A laststand experiment",
        **root,
        "additionalProperties": False,
        "$defs": components,
    }


SPACE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {DEFAULT_KEY: {"enum": [True, False, EVERY]}},
    "additionalProperties": {
        "anyOf": [
            {"type": "array", "minItems": 1},
            {
                "type": "object",
                "properties": {"from": {"type": "number"}, "to": {"type": "number"}},
                "required": ["from", "to"],
                "additionalProperties": False,
            },
        ]
    },
}
"""The JSON Schema of the table `space`."""


def properties_of(kind: type[Any]) -> dict[str, Any]:
    """Returns the keys of a class in a JSON Schema: description, type, bounds, choices and default of each."""
    properties: dict[str, Any] = _schema_of(kind)[1]["properties"]
    return properties


def _schema_of(kind: type[Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Returns the reference to a class, its schema with described keys, and the schemas that it refers to."""
    (known,), components = msgspec.json.schema_components(
        [kind], schema_hook=_schema_hook, ref_template="#/$defs/{name}"
    )
    reference = str(known["$ref"])
    schema = components.pop(reference.rpartition("/")[2])
    # The class docstring describes code, not keys of a file.
    schema = {key: value for key, value in schema.items() if key not in ("description", "title")}
    _describe(schema["properties"], kind)
    return reference, schema, components


def _describe(properties: dict[str, Any], kind: type[Any]) -> None:
    """Adds the descriptions of a class's keys, in front."""
    for key, description in describe_keys(kind).items():
        if key in properties:
            properties[key] = {"description": description, **properties[key]}


def _schema_hook(kind: type[Any]) -> dict[str, Any]:
    if kind is WorkloadConfig:
        return {"type": "object"}
    raise NotImplementedError(f"no schema for {kind}")


def _scalar_keys() -> tuple[str, ...]:
    apart = (*TABLES, *OPEN_TABLES, "workload", "workload_name", "schedule", "space")
    return tuple(key for key in _keys(Experiment) if key not in apart)


def _keys(kind: type[Any]) -> list[str]:
    return [item.name for item in fields(kind) if item.name != "workload_name"]


def _check_keys(where: str, data: Mapping[str, Any], known: list[str]) -> None:
    for key in data:
        if key not in known:
            raise UsageError(unknown_name(f"key of {where}", key, known))


def _table(where: str, data: Any, kind: type[Any]) -> Any:
    if not isinstance(data, Mapping):
        raise UsageError(f"{where!r} must be a table")
    _check_keys(where, data, [item.name for item in fields(kind)])
    _check_numbers(where, data)
    return _convert(where, data, kind)


def _workload(data: Any, system: System) -> tuple[str, Any]:
    if not isinstance(data, Mapping):
        raise UsageError("'workload' must be a table")
    name = _convert("workload.name", data.get(NAME_KEY, APPEND.name), str)
    settings = {key: value for key, value in data.items() if key != NAME_KEY}
    config = WORKLOADS.get(name).config
    if CLIENT_KEY in (item.name for item in fields(config)):
        settings.setdefault(CLIENT_KEY, system.default_client)
    return name, _table("workload", settings, config)


def split_system(text: str) -> dict[str, str]:
    """Returns the keys of an experiment that "apache-kafka:4.1.2" or "reference" sets."""
    name, _, version = text.partition(":")
    return {"system": name, "version": version}


def find_system(system: str, version: str) -> System:
    """Returns a system, in one version if it has several; the default one if `version` is empty.

    Raises:
        UsageError: There is no such system or version.
    """
    found = SYSTEMS.get(system)
    if isinstance(found, VersionedSystem):
        return found.of_version(version or found.default_version, {})
    if version:
        raise UsageError(f"the system {system!r} has no versions; leave {version!r} out")
    return found


def _choose_system(data: dict[str, Any], keys: Mapping[str, str]) -> None:
    """Puts another system or version into an experiment's data, without what only the former one can have.

    The profile stays if the new system has it: so the reference system behaves like the version that it replaces.
    """
    former = _system(data)
    chosen = {"system": keys.get("system", former["system"]), "version": keys["version"]}
    if chosen == former:
        return
    data.update(chosen)
    system = SYSTEMS.get(chosen["system"])
    if isinstance(system, VersionedSystem) or data.get("profile") not in system.profiles:
        data.pop("profile", None)
    if chosen["system"] == former["system"]:
        return
    properties = data.get("properties")
    for key in ("time_scale", *OPEN_TABLES):
        data.pop(key, None)
    if isinstance(properties, Mapping) and isinstance(system, PropertyTaker):
        data["properties"] = {
            key: value for key, value in properties.items() if _takes(system, key, value)
        }
    workload = data.get("workload")
    if isinstance(workload, Mapping) and CLIENT_KEY in workload:
        rest = {key: value for key, value in workload.items() if key != CLIENT_KEY}
        if workload[CLIENT_KEY] == SYSTEMS.get(former["system"]).default_client:
            data["workload"] = rest


def _takes(system: PropertyTaker, key: str, value: Any) -> bool:
    """Whether a system takes a property."""
    try:
        system.check_properties(_properties("properties", {key: value}))
    except UsageError:
        return False
    return True


def _system(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns name and version of the system, which may be written in one word."""
    name = _convert("experiment.system", values.get("system", REFERENCE), str)
    version = _convert("experiment.version", values.get("version", ""), str)
    parts = split_system(name)
    if parts["version"] and version not in ("", parts["version"]):
        raise UsageError(f"experiment.system is {name!r}, but experiment.version is {version!r}")
    return {"system": parts["system"], "version": parts["version"] or version}


def _open_table(where: str, data: Any, kind: Any) -> dict[str, Any]:
    """Returns a table whose values are all of one type; the error names the key, which may have dots."""
    table = _convert(where, data, dict[str, Any])
    return {key: _convert(f"{where}.{key}", value, kind) for key, value in table.items()}


def _features(where: str, data: Any) -> Any:
    return _open_table(where, data, Annotated[int, msgspec.Meta(ge=0, le=2**15 - 1)])


def _properties(where: str, data: Any) -> dict[str, str]:
    """Returns properties as text: true and false in lower case, as they are written in TOML."""
    read = _open_table(where, data, str | int | float | bool)
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in read.items()
    }


OPEN_TABLES: Mapping[str, Callable[[str, Any], Any]] = {
    "features": _features,
    "properties": _properties,
}
"""Tables whose keys only the system knows."""

DECIDES_PROFILE = ("system", "version")
"""Keys from which the profile follows, so that a value of the file cannot stay as it was."""


def _schedule(data: Any) -> tuple[Fault, ...]:
    if not isinstance(data, list | tuple) or not all(isinstance(entry, Mapping) for entry in data):
        raise UsageError("'schedule' must be an array of tables")
    return tuple(fault_from_json(entry, default_id=f"f{index}") for index, entry in enumerate(data))


def _convert(where: str, value: Any, kind: Any) -> Any:
    """Converts a value; the error names the key and the value."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, UsageError):
            raise error.__cause__ from None
        problem, _, path = str(error).partition(" - at `$")
        wrong = value
        # "[...]" stands for a value of a table with open keys.
        keys = re.findall(r"\[[^]]*\]|[^.[\]]+", path.rstrip("`"))
        for key in keys:
            if key == "[...]":
                break
            wrong = wrong[int(key[1:-1]) if key.startswith("[") else key]
        name = ".".join([where, *(key for key in keys if not key.startswith("["))])
        problem = problem.replace("`", "").replace("Expected", "expected")
        raise UsageError(f"{name} is {json.dumps(wrong, default=str)}: {problem}") from None


def _check_numbers(where: str, data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not math.isfinite(value):
            raise UsageError(f"{where}.{key} must be a finite number, not {value}")
        if not 0 <= value < 2**63:
            problem = "negative" if value < 0 else "that large"
            raise UsageError(f"{where}.{key} must not be {problem}")


def _all_keys(data: Mapping[str, Any]) -> list[str]:
    keys: list[str] = []
    for key, value in data.items():
        if isinstance(value, dict):
            keys.extend(f"{key}.{name}" for name in value)
        else:
            keys.append(key)
    return keys


def _keys_to_vary(data: Mapping[str, Any]) -> list[str]:
    """Returns everything that `vary` takes: the keys of a file, `ELR_KEY`, and a key of each open table."""
    keys = [key for key in _all_keys(data) if key.partition(".")[0] not in OPEN_TABLES]
    return [*keys, ELR_KEY, *(f"{table}.KEY" for table in OPEN_TABLES)]


def _parse_scalar(key: str, text: str, old: Any) -> Any:
    try:
        if isinstance(old, bool):
            return {"true": True, "false": False}[text]
        if isinstance(old, int):
            return int(text)
        if isinstance(old, float):
            return float(text)
    except (KeyError, ValueError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[type(old)]
        raise UsageError(f"{key}: {text!r} is not {kind}") from None
    return text.split("+") if isinstance(old, list | tuple) else text
