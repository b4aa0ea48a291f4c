"""Files and environment variables that processes read: settings, tokens, certificates, YAML."""

from __future__ import annotations

import tempfile
from pathlib import Path

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.api.identity import AUTHORITIES_FILE, CHAIN_FILE, KEY_FILE, SIDECAR
from distributed_input.api.process_config import document_flags
from distributed_input.api.resource.parse import parse_all
from distributed_input.api.resource.problems import ResourceError
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.runtime.files.tokens import FileToken
from distributed_input.sidecar.main import _read_configs
from testing.certificates import LIFE, authority, now
from testing.fuzz.target import Subject, Target

_EXAMPLES = Path(__file__).parents[3] / "examples"
_LABELS = b"\n#part\n"


def _process_config() -> Subject:
    def parse(data: bytes) -> None:
        document_flags(data.decode("utf-8", "surrogateescape"))  # as os.environ decodes

    seeds = [b'{"version": 1, "stateDir": "/states", "relaxed": true, "modules": ["a", "b"]}']
    return Subject(parse, seeds, (ConfigError,), is_json=True)


def _inputs_file() -> Subject:
    path = Path(tempfile.mkdtemp()) / "inputs.json"

    def parse(data: bytes) -> None:
        path.write_bytes(data)
        _read_configs([str(path)])

    seeds = [
        b'{"inputs": {"train": {"dataset": {"entryPoint": "a.b:c", "args": {"n": 1}, "source":'
        b' {"path": "/code"}}, "partitions": 4, "seed": 7, "batching": {"globalBatchSize": 8,'
        b' "remainder": "drop"}, "sidecar": {"bufferBytes": 1048576,'
        b' "timeoutSeconds": 0.5}}, "eval": {}}}'
    ]
    return Subject(parse, seeds, (ConfigError,), is_json=True)


def _tokens() -> Subject:
    path = Path(tempfile.mkdtemp()) / "token"

    def parse(data: bytes) -> None:
        path.write_bytes(data)
        FileToken(path).accepted()

    return Subject(parse, [b"c2VjcmV0\n", b"  token  "], (ConfigError,))


def _certificates() -> Subject:
    place = Path(tempfile.mkdtemp())
    names = (CHAIN_FILE, KEY_FILE, AUTHORITIES_FILE)

    def parse(data: bytes) -> None:
        parts = (*data.split(_LABELS), b"", b"", b"")
        for name, part in zip(names, parts, strict=False):
            (place / name).write_bytes(part)
        CertificateFolder(place).current()

    issuer = authority()
    parts = [issuer.issue(SIDECAR, now(), LIFE), issuer.key(SIDECAR), issuer.certificate]
    return Subject(parse, [_LABELS.join(one.encode() for one in parts)], (UnavailableError,))


def _resources() -> Subject:
    def parse(data: bytes) -> None:
        parse_all(data.decode("utf-8", "replace"), "input.yaml", "/folder")

    paths = [_EXAMPLES / name / "input.yaml" for name in ("digits", "data", "photos")]
    head = (
        b"apiVersion: distributed-input.dev/v1beta1\nkind: DistributedInput\n"
        b"metadata: {name: a}\nspec:\n  dataset:\n    type: EntryPoint\n"
        b"    entryPoint:\n      function: a.b:c\n      args:\n"
    )
    aliases = head + b"        {a: &a [x, y], b: [*a, *a], c: 1e3}\n"
    merges = head + (
        b"        a0: &a0 {x: 1, y: 2}\n        a1: &a1 {<<: [*a0, *a0, *a0]}\n"
        b"        a2: &a2 {<<: [*a1, *a1, *a1]}\n        a3: {<<: *a2, <<: *a2, z: *a2}\n"
    )
    seeds = [*(path.read_bytes() for path in paths), aliases, merges]
    return Subject(parse, seeds, (ResourceError,))


TARGETS = (
    Target("files/process-config", "operator → processes, environment", _process_config),
    Target("files/inputs", "ConfigMap → sidecar", _inputs_file),
    Target("files/tokens", "Secret → processes", _tokens),
    Target("files/certificates", "Secret and ConfigMap → processes", _certificates, 0.25),
    Target("files/resources", "user → distributed-input run, inject, validate", _resources, 0.15),
)
