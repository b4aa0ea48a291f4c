"""The section `dataset` in one version, from that in the other."""

from __future__ import annotations

from typing import Any

from distributed_input.api.resource.conversion.kept import Json


def beta_dataset(dataset: Json) -> Json:
    """Return the section of v1beta1."""
    if "entryPoint" not in dataset:
        return {"type": "Trainer"}
    entry: Json = {"function": dataset["entryPoint"]}
    if "args" in dataset:
        entry["args"] = dataset["args"]
    if source := _location(dataset.get("source")):
        entry["source"] = source
    return {"type": "EntryPoint", "entryPoint": entry}


def alpha_dataset(dataset: Json) -> Json:
    """Return the section of v1alpha1."""
    entry = dataset.get("entryPoint")
    if dataset.get("type") != "EntryPoint" or not isinstance(entry, dict):
        return {}
    result: Json = {}
    if "function" in entry:
        result["entryPoint"] = entry["function"]
    if "args" in entry:
        result["args"] = entry["args"]
    if source := _source(entry.get("source")):
        result["source"] = source
    return result


def _location(source: Any) -> Json:
    if not isinstance(source, dict):
        return {}
    if "path" in source:
        return {"type": "Path", "path": source["path"]}
    if "configMap" in source:
        return {"type": "ConfigMap", "configMap": {"name": source["configMap"]}}
    return {"type": "Image"} if source.get("image") is True else {}


def _source(location: Any) -> Json:
    if not isinstance(location, dict):
        return {}
    config_map = location.get("configMap")
    if location.get("type") == "Path" and "path" in location:
        return {"path": location["path"]}
    if location.get("type") == "ConfigMap" and isinstance(config_map, dict):
        return {"configMap": config_map["name"]} if "name" in config_map else {}
    return {"image": True} if location.get("type") == "Image" else {}
