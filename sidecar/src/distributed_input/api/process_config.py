"""The configuration of a process in a pod: fixed flags, and one document for all other settings.

An operator runs images of its own release and of the two releases before: an input may name its
own image, and pods keep their default image during an upgrade. A process refuses a flag that it
does not have. So pods get only the flags of the first release, 0.1.0. Every later setting is a
field of a JSON document in the environment variable DISTRIBUTED_INPUT_CONFIG:

    {"version": 1, "stateDir": "/states"}

A field is a flag without dashes, in camelCase. A process ignores fields that it does not have, and
logs their names. Release 0.1.0 does not read the variable. Flags take precedence over the document,
so that people can override it. Three rules keep the releases compatible:

- The fixed flags stay, with their meaning, because earlier operators set them too.
- A setting that a process must not ignore remains a flag: an image without it does not start.
- The document has only settings that differ from their default. Without any, there is no document.
  So another release of the operator does not change the pods of an input.

The version increases only if the meaning of a field changes. An operator may send a new version
when the two releases before its own can read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from distributed_input.api import flags
from distributed_input.api.environment import CONFIG_ENV
from distributed_input.api.errors import ConfigError

VERSION = 1
"""Version of the document."""
FIXED_FLAGS = frozenset(
    {
        flags.ADVERTISE,
        flags.CACHE_BYTES,
        flags.CONFIG,
        flags.CONSUMER_COUNT,
        flags.CONSUMER_INDEX,
        flags.DIR,
        flags.DISPATCHER,
        flags.GRACE_SECONDS,
        flags.LISTEN,
        flags.METRICS_LISTEN,
        flags.PARALLELISM,
        flags.PATH,
        flags.PORT,
        flags.RELAXED,
        flags.SHARE_BYTES,
        flags.STATIC_WORKERS,
        flags.TOKEN_FILE,
        flags.WORK_DIR,
    }
)
"""The flags of release 0.1.0 that operators set. Add no flag: a later one is a field."""
MANDATORY_FLAGS = frozenset({flags.MODULES})
"""Flags that no process may ignore: an image without them does not start."""

_VERSION_FIELD = "version"


def split(arguments: Sequence[str], mandatory: Collection[str] = ()) -> tuple[list[str], str]:
    """Return the flags of a process in a pod, and its document, or "" if it needs none.

    Args:
        arguments: flags, each with its value. No value begins with two dashes.
        mandatory: flags besides MANDATORY_FLAGS that the process must not ignore.
    """
    kept: list[str] = []
    fields: dict[str, list[Any]] = {}
    for words in _groups(arguments):
        if words[0] in FIXED_FLAGS.union(MANDATORY_FLAGS, mandatory):
            kept += words
        else:
            fields.setdefault(_field(words[0]), []).append(words[1] if len(words) > 1 else True)
    if not fields:
        return kept, ""
    document = {key: values[0] if len(values) == 1 else values for key, values in fields.items()}
    return kept, json.dumps({_VERSION_FIELD: VERSION, **document})


def document_flags(text: str) -> list[str]:
    """Return the settings in a document as flags, each one word: `--flag=value` or `--flag`.

    Raises:
        ConfigError: the text is not a document, or it has a later version.
    """
    try:
        fields = json.loads(text)
        version = fields.pop(_VERSION_FIELD)
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(
            f'{CONFIG_ENV}: expected a JSON object like {{"version": {VERSION}}}, got {text!r}'
        ) from error
    if version != VERSION:
        raise ConfigError(
            f"{CONFIG_ENV}: this release reads version {VERSION}, not {version!r}: use an image of "
            "the operator's release"
        )
    return [word for field, value in fields.items() for word in _words(field, value)]


def field_of(word: str) -> str:
    """Return the field that a word of `document_flags` comes from."""
    return _field(word.partition("=")[0])


def _groups(arguments: Sequence[str]) -> list[list[str]]:
    """Group each flag with its value."""
    groups: list[list[str]] = []
    for word in arguments:
        if word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return groups


def _words(field: str, value: Any) -> Iterator[str]:
    flag = "--" + re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", field)
    for one in value if isinstance(value, list) else [value]:
        if one is True:
            yield flag
        elif one is not None and one is not False:
            yield f"{flag}={one if isinstance(one, str) else json.dumps(one)}"


def _field(flag: str) -> str:
    return re.sub("-([a-z])", lambda found: found[1].upper(), flag.removeprefix("--"))
