"""Responses to ConversionReviews: DistributedInputs in another version.

The conversion is a pure function of the request. It reads nothing from the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web

from distributed_input.api.resource.conversion.convert import convert
from distributed_input_operator import metrics

Json = dict[str, Any]
_log = logging.getLogger(__name__)

MAX_CONCURRENT = 4
"""Maximum number of reviews in memory. Others wait, and their bodies are not read yet."""
DEADLINE_SECONDS = 25.0
"""Time limit for a response. The API server waits 30 s and then reports no cause."""


class Converter:
    """Responds to ConversionReviews, a few at a time, so that trainer pods do not wait for them."""

    def __init__(self) -> None:
        self._limit = asyncio.Semaphore(MAX_CONCURRENT)

    async def review(self, request: web.Request) -> web.Response:
        """Respond to a request of the API server."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS), self._limit:
                with metrics.CONVERSION_SECONDS.time():
                    body = await request.json()
                    response = await respond(body["request"])
        except TimeoutError:
            return web.Response(status=503, text="too many conversions at the same time")
        metrics.CONVERSIONS.labels(response["result"]["status"]).inc()
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
        return web.json_response({**head, "response": response})


async def respond(request: Json) -> Json:
    """Return the `response` for the `request` of a ConversionReview."""
    version, converted = request["desiredAPIVersion"], []
    try:
        for one in request["objects"]:
            converted.append(convert(one, version))
            await asyncio.sleep(0)  # Requests for trainer pods come in between.
    except ValueError as error:
        _log.warning("refused a conversion: %s", error)
        result = {"status": "Failure", "message": str(error)}
        return {"uid": request["uid"], "result": result, "convertedObjects": []}
    result = {"status": "Success"}
    return {"uid": request["uid"], "result": result, "convertedObjects": converted}
