"""Responses to ConversionReviews: inputs and policies in another version.

The conversion is a pure function of the request. It reads nothing from the cluster.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from aiohttp import web

from distributed_input.api.resource.conversion.convert import convert
from distributed_input_operator import metrics

Json = dict[str, Any]
_log = logging.getLogger(__name__)

MAX_CONCURRENT = 4
"""Maximum number of reviews in memory. Others wait, and their bodies are not read yet."""
_CAUSES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors of one object, whose name the response then has."""
_TOO_DEEP = "nested too deeply"
DEADLINE_SECONDS = 25.0
"""Time limit for a response. The API server waits 30 s and then reports no cause."""


class Converter:
    """Responds to ConversionReviews, a few at a time, which limits the memory.

    Requests for trainer pods wait while one object is converted, but not for a whole review.
    """

    def __init__(self) -> None:
        self._limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def review(self, request: web.Request) -> web.Response:
        """Respond to a request of the API server."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS), self._limit:
                with metrics.CONVERSION_SECONDS.time():
                    body = await request.json()
                    response = await respond(body["request"])
                    response, text = _written(response)
        except TimeoutError:
            return web.Response(status=503, text="too many conversions at the same time")
        except RecursionError:
            return web.Response(status=400, text=f"an object of the request is {_TOO_DEEP}")
        metrics.CONVERSIONS.labels(response["result"]["status"]).inc()
        return web.Response(text=text, content_type="application/json")


def _written(response: Json) -> tuple[Json, str]:
    """Return a response and its JSON. If that cannot be written, return a failure with the name."""
    try:
        return response, _review(response)
    except (RecursionError, ValueError) as error:
        name = next(map(_name, filter(_is_unwritable, response["convertedObjects"])), "?")
        failed = _failure(response["uid"], name, error)
        return failed, _review(failed)


def _is_unwritable(found: Json) -> bool:
    try:
        _review({"convertedObjects": [found]})
    except (RecursionError, ValueError):
        return True
    return False


def _review(response: Json) -> str:
    """Return the body of a response. The API server cannot read NaN."""
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
    return json.dumps({**head, "response": response}, allow_nan=False)


async def respond(request: Json) -> Json:
    """Return the `response` for the `request` of a ConversionReview."""
    version, converted = request["desiredAPIVersion"], []
    for one in request["objects"]:
        try:
            converted.append(convert(one, version))
        except _CAUSES as error:
            return _failure(request["uid"], _name(one), error)
        await asyncio.sleep(0)  # Requests for trainer pods come in between.
    result = {"status": "Success"}
    return {"uid": request["uid"], "result": result, "convertedObjects": converted}


def _failure(uid: str, name: str, error: Exception) -> Json:
    cause = _TOO_DEEP if isinstance(error, RecursionError) else str(error)
    message = f"{name}: {cause}"
    _log.warning("refused a conversion: %s", message)
    result = {"status": "Failure", "message": message}
    return {"uid": uid, "result": result, "convertedObjects": []}


def _name(found: Any) -> str:
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict):
        return "?"
    return "/".join(str(metadata[key]) for key in ("namespace", "name") if key in metadata)
