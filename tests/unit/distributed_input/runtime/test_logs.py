"""Log lines are JSON and contain no secrets."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings

import pytest

from distributed_input.runtime import logs


@pytest.fixture
def lines():
    """Configure logging to a buffer; return a function that reads the lines so far."""
    logging.captureWarnings(False)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()
    logs.setup("worker", "info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.captureWarnings(False)
    root.handlers[:], _ = before
    root.setLevel(before[1])


def test_a_line_has_time_level_part_message_and_fields(lines):
    logs.get("worker.streams").info("opened", split=3, address="h:1")
    (line,) = lines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info",
        "part": "worker",
        "logger": "worker.streams",
        "message": "opened",
        "split": 3,
        "address": "h:1",
    }


def test_text_with_percent_signs_and_line_breaks_stays_one_line(lines):
    logs.get("x").warning("100%s of\nit", what="a\nb")
    (line,) = lines()
    assert (line["message"], line["what"]) == ("100%s of\nit", "a\nb")


def test_a_field_cannot_replace_a_reserved_one(lines):
    logs.get("x").info("true", part="elsewhere", level="none")
    (line,) = lines()
    assert (line["part"], line["level"], line["part_"]) == ("worker", "info", "elsewhere")


def test_lower_levels_are_not_logged(lines):
    logs.get("x").debug("no")
    assert lines() == []


def test_an_exception_is_logged_with_its_traceback(lines):
    try:
        raise KeyError("gone")
    except KeyError:
        logs.get("x").exception("failed", job="j")
    (line,) = lines()
    assert "KeyError: 'gone'" in line["traceback"]


def test_libraries_log_in_the_same_format(lines):
    logging.getLogger("grpc").warning("odd %d", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("outdated", stacklevel=1)
    odd, outdated = (line["message"] for line in lines())
    assert odd == "odd 3"
    assert "UserWarning: outdated" in outdated


def test_secrets_are_replaced_everywhere(lines):
    logs.redact("s3cret-token")
    log = logs.get("x")
    log.info("with s3cret-token", value={"a": "s3cret-token"})
    log.info("metadata", sent=[("authorization", "Bearer other-t0ken")])
    try:
        raise ValueError("bad s3cret-token")
    except ValueError:
        log.exception("failed")
    text = json.dumps(lines())
    assert "s3cret" not in text
    assert "t0ken" not in text
    assert text.count("***") == 5  # twice in the traceback


def test_a_secret_with_quotes_is_replaced(lines):
    logs.redact('with"quo\\te')
    logs.get("x").info('it is with"quo\\te')
    assert lines()[0]["message"] == "it is ***"


def test_short_strings_are_not_replaced(lines):
    logs.redact("message")
    logs.get("x").info("message")
    assert lines()[0]["message"] == "message"


def test_only_the_latest_secrets_are_kept(lines):
    for i in range(100):
        logs.redact(f"rotated-{i:03d}")
    assert len(logs._secrets) == 16
    logs.get("x").info("now rotated-099")
    assert lines()[0]["message"] == "now ***"
