"""What all reconciliations share: the API client, settings, and the operator's mutable state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.ledger import Ledger
from distributed_input_operator.controller.looks import Looks
from distributed_input_operator.controller.rollouts import Rollouts
from distributed_input_operator.controller.tokens import InputTokens
from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.issuer_secret import IssuerSecret
from distributed_input_operator.kube.namespaces import NamespaceLabels
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.reconcile.pace import DEFAULT_LIMIT, parse_limit


@dataclass
class ControllerContext:
    """The API client, settings, and the mutable state of one leader.

    All state can be lost: a new leader rebuilds it from the cluster.
    """

    api: Api
    store: Store
    tokens: InputTokens
    dispatchers: DispatcherClient
    settings: Settings
    certificate_life: timedelta = timedelta(hours=24)
    """Time for which the certificates of encrypted inputs are valid."""
    ledger: Ledger = field(default_factory=Ledger)
    namespaces: NamespaceLabels = field(init=False)
    issuer: IssuerSecret | None = None
    """What signs the authorities of encrypted inputs. None: they sign themselves."""
    looks: Looks = field(init=False)
    rollouts: Rollouts = field(default_factory=lambda: Rollouts(parse_limit(DEFAULT_LIMIT)))
    settling: dict[InputKey, tuple[float, float]] = field(default_factory=dict)
    """Deleted inputs: when one was first checked, and since when nothing creates pods of it."""
    _autoscaling: dict[InputKey, tuple[str, AutoscalingState]] = field(default_factory=dict)
    """The uid of each input and its last autoscaling state, which is newer than in the status."""

    def __post_init__(self) -> None:
        self.namespaces = NamespaceLabels(self.api)
        self.looks = Looks(self.dispatchers.look, self.dispatchers.close)

    def autoscaling_state(self, key: InputKey, uid: str) -> AutoscalingState | None:
        """Return the last autoscaling state of the input. None: it is only in the status."""
        known, state = self._autoscaling.get(key, ("", None))
        return state if known == uid else None

    def set_autoscaling_state(
        self, key: InputKey, uid: str, state: AutoscalingState | None
    ) -> None:
        """Store the last autoscaling state of the input. None: it has no autoscaling."""
        if state is None:
            self._autoscaling.pop(key, None)
        else:
            self._autoscaling[key] = (uid, state)

    def forget(self, key: InputKey) -> None:
        """Drop the state of a deleted input, except its claim in the ledger."""
        self.tokens.forget(key)
        self.dispatchers.forget(key)
        self.looks.forget(key)
        self.rollouts.forget(key)
        self._autoscaling.pop(key, None)
