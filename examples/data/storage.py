"""Files in a folder (such as a PVC), in S3 or in Google Cloud Storage, through pyarrow.

Credentials come from the worker's environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
GOOGLE_APPLICATION_CREDENTIALS, or workload identity. See docs/data.md.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyarrow import fs

import distributed_input

TIMEOUT_SECONDS = 30.0  # of one request; for Cloud Storage, of its attempts together
ATTEMPTS = 3  # of one request to S3, with exponential backoff
PERMANENT = (  # names of errors of S3, as pyarrow prints them
    *("NO_SUCH_BUCKET", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH"),
    *("PermanentRedirect", "AuthorizationHeaderMalformed", "ExpiredToken"),  # region, session
)


def connect(url: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URL, and the path in it.

    Args:
        url: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, or a folder, relative to this file.

    Raises:
        ConfigError: the URL has another scheme.
    """
    scheme, _, path = url.rpartition("://")
    if scheme == "s3":
        retry = fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS)
        server = os.environ.get("AWS_ENDPOINT_URL")  # of S3 that is not Amazon's
        timeouts = {"request_timeout": TIMEOUT_SECONDS, "connect_timeout": TIMEOUT_SECONDS}
        return fs.S3FileSystem(endpoint_override=server, retry_strategy=retry, **timeouts), path
    if scheme == "gs":
        limit = datetime.timedelta(seconds=TIMEOUT_SECONDS)
        emulator = "CLOUD_STORAGE_EMULATOR_ENDPOINT" in os.environ  # it has no credentials
        return fs.GcsFileSystem(anonymous=emulator, retry_time_limit=limit), path
    if "://" in url:
        raise distributed_input.ConfigError(
            f"{url}: use s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or a folder"
        )
    return fs.LocalFileSystem(), str(Path(__file__).parent / path)


def files_of_split(ctx: Any, url: str, suffix: str) -> tuple[fs.FileSystem, list[str]]:
    """Return the file system of a URL, and the paths of the files that one split reads.

    The order of the files is another one in each epoch, and the same for all splits. Otherwise a
    file would belong to two splits, or to none.
    """
    with retryable():
        files, root = connect(url)
        found = files.get_file_info(fs.FileSelector(root, recursive=True))
    paths = sorted(one.path for one in found if one.path.endswith(suffix))
    if not paths:
        raise distributed_input.ConfigError(f"{url} has no files that end with {suffix}")
    random.Random(ctx.seed).shuffle(paths)
    return files, paths[ctx.input_pipeline_id :: ctx.num_input_pipelines]


@contextlib.contextmanager
def retryable() -> Iterator[None]:
    """Raise errors of the storage as retryable errors.

    A sidecar repeats them until `sidecar.timeoutSeconds`, and resumes at the same row. It gives up
    after three errors of another class.
    """
    try:
        yield
    except OSError as error:
        permanent = isinstance(error, FileNotFoundError | PermissionError)
        if permanent or any(cause in str(error) for cause in PERMANENT):
            raise
        raise distributed_input.UnavailableError(f"storage: {error}") from error
