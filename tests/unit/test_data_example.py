"""The storage of examples/data, with a pyarrow that only has names."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError, UnavailableError

STORAGE = Path(__file__).parents[2] / "examples" / "data" / "storage.py"
FAILED = "When listing objects under key 'x/' in bucket 'b': AWS Error"
UNKNOWN = "during ListObjectsV2 operation: Unable to parse ExceptionName:"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the names of the example's module."""
    pyarrow = ModuleType("pyarrow")
    pyarrow.fs = SimpleNamespace(LocalFileSystem=lambda: "local")
    monkeypatch.setitem(sys.modules, "pyarrow", pyarrow)
    return runpy.run_path(str(STORAGE))


@pytest.mark.parametrize(
    "error",
    [
        OSError(f"{FAILED} NO_SUCH_BUCKET during ListObjectsV2 operation: none"),
        OSError(f"{FAILED} INVALID_ACCESS_KEY_ID during ListObjectsV2 operation: none"),
        OSError(f"{FAILED} UNKNOWN (HTTP status 301) {UNKNOWN} PermanentRedirect Message: other"),
        OSError(f"{FAILED} UNKNOWN (HTTP status 400) {UNKNOWN} AuthorizationHeaderMalformed"),
        OSError(f"{FAILED} UNKNOWN (HTTP status 400) {UNKNOWN} ExpiredToken Message: expired"),
        FileNotFoundError("none"),
        PermissionError("no"),
    ],
)
def test_errors_that_a_retry_cannot_repair(storage: dict[str, Any], error: OSError) -> None:
    with pytest.raises(type(error)) as caught:
        with storage["retryable"]():
            raise error
    assert caught.value is error


@pytest.mark.parametrize(
    "message",
    [
        f"{FAILED} SLOW_DOWN during ListObjectsV2 operation: reduce the rate",
        f"{FAILED} NETWORK_CONNECTION during ListObjectsV2 operation: reset",
        f"{FAILED} UNKNOWN (HTTP status 503) during HeadObject operation: No response body.",
    ],
)
def test_errors_that_are_retried(storage: dict[str, Any], message: str) -> None:
    with pytest.raises(UnavailableError, match=r"^storage: "):
        with storage["retryable"]():
            raise OSError(message)


@pytest.mark.parametrize("url", ["gcs://b/x", "az://b/x", "S3://b/x", "file:///x", "://x"])
def test_other_schemes_are_not_folders(storage: dict[str, Any], url: str) -> None:
    with pytest.raises(ConfigError, match="use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or a folder"):
        storage["connect"](url)


@pytest.mark.parametrize(
    ("url", "path"), [("/data/x", "/data/x"), ("x", str(STORAGE.parent / "x"))]
)
def test_folders(storage: dict[str, Any], url: str, path: str) -> None:
    assert storage["connect"](url) == ("local", path)
