"""The Secret with the authority that signs the authorities of inputs, which cert-manager writes."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from distributed_input_operator.certificates.issuer import (
    CHAIN_FIELD,
    FORBIDDEN,
    KEY_FIELD,
    MISSING,
    Issuer,
    UnusableIssuer,
    parse,
)
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import SECRET

_log = logging.getLogger(__name__)

SECONDS = 30.0
"""Age up to which the Secret is used again. cert-manager renews it long before it expires."""
_FORBIDDEN_STATUS = 403


class IssuerSecret:
    """Reads the Secret, at most every 30 s for all inputs together.

    Args:
        api: client of the API server.
        namespace: the operator's namespace.
        name: of the Secret.
        clock: seconds.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: tuple[float, Issuer | UnusableIssuer] | None = None
        self._logged = ""

    async def current(self) -> Issuer | UnusableIssuer:
        """Return the authority, or why there is none that may sign.

        Raises:
            ApiError: the API server did not answer the request.
        """
        async with self._lock:
            if self._known is None or self._clock() - self._known[0] >= SECONDS:
                self._known = self._clock(), await self._read()
            return self._known[1]

    async def _read(self) -> Issuer | UnusableIssuer:
        where = f"Secret {self._name} in namespace {self._namespace}"
        try:
            found = await self._get()
            if found is None:
                raise UnusableIssuer(
                    MISSING,
                    "it does not exist: `kubectl describe certificate` shows why cert-manager "
                    "does not create it",
                )
            data = found.get("data") or {}
            fields = {
                key: base64.b64decode(data[key]) for key in (CHAIN_FIELD, KEY_FIELD) if key in data
            }
            issuer = parse(fields, datetime.now(timezone.utc))
        except UnusableIssuer as error:
            problem = UnusableIssuer(error.reason, f"{where}: {error}")
            if str(problem) != self._logged:
                _log.error("the authorities of inputs cannot be signed: %s", problem)
            self._logged = str(problem)
            return problem
        self._logged = ""
        return issuer

    async def _get(self) -> Mapping[str, Any] | None:
        try:
            return await self._api.get(SECRET, self._namespace, self._name)
        except ApiError as error:
            if error.status != _FORBIDDEN_STATUS:
                raise
            raise UnusableIssuer(
                FORBIDDEN,
                f"the operator may not read it: install the Role of the chart again ({error})",
            ) from error
