"""The configuration of a process in a pod: flags, and a document of settings that it may ignore.

Pods may run another release than the operator: an input may name its own image, and pods keep their
default image during an upgrade. A process refuses a flag that it does not have. So settings that a
process may ignore are fields of a JSON document in the environment variable
DISTRIBUTED_INPUT_CONFIG:

    {"version": 1, "stateDir": "/states"}

A field is a flag without dashes, in camelCase. A process ignores fields that it does not have, and
logs their names. Flags take precedence over the document, so that people can override it. The
document has only settings that differ from their default. Without any, there is no document. So
another release of the operator does not change the pods of an input.

The version increases only if the meaning of a field changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from distributed_input.api import flags
from distributed_input.api.environment import CONFIG_ENV
from distributed_input.api.errors import ConfigError

VERSION = 1
"""Version of the document."""
OPTIONAL_FLAGS = frozenset(
    {flags.PLAIN_TRANSFER, flags.STATE_DIR, flags.STORE_DIR, flags.STORE_BYTES}
)
"""Settings that a process may ignore: without them, it is slower."""

_VERSION_FIELD = "version"


def split(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the flags of a process in a pod, and its document, or "" if it needs none.

    No value begins with two dashes.
    """
    kept: list[str] = []
    fields: dict[str, Any] = {}
    for words in _groups(arguments):
        if words[0] in OPTIONAL_FLAGS:
            fields[_field(words[0])] = words[1] if len(words) > 1 else True
        else:
            kept += words
    return kept, json.dumps({_VERSION_FIELD: VERSION, **fields}) if fields else ""


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
    return [word for field, value in fields.items() for word in _word(field, value)]


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


def _word(field: str, value: Any) -> Iterator[str]:
    """Yield a setting as a flag. Null and false are no flag."""
    flag = "--" + re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", field)
    if value is True:
        yield flag
    elif value is not None and value is not False:
        yield f"{flag}={value if isinstance(value, str) else json.dumps(value)}"


def _field(flag: str) -> str:
    return re.sub("-([a-z])", lambda found: found[1].upper(), flag.removeprefix("--"))
