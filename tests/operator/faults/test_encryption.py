"""The life of an encrypted input, with an operator that crashes, and with lost responses."""

from __future__ import annotations

from functools import partial

import pytest

from testing.api_faults.certificates import check_certificates
from testing.api_faults.proxy import NO_FAULTS, Faults
from testing.api_faults.scenario import ENCRYPTED, ENCRYPTED_CHANGE, NAME, live

LOST = Faults(lost_after=0.1)
_undisturbed: list = []


@pytest.fixture
def encrypted(make_place):
    """Return the states of an undisturbed life, and the number of the operator's writes."""
    if not _undisturbed:
        place = make_place()
        place.operator.start()
        states = lived(place)
        _undisturbed.append((states, len(place.proxy.writes)))
    return _undisturbed[0]


def lived(place, expected=None):
    """Run the life of an encrypted input, and check its certificates after each part."""
    return live(
        place.cluster,
        NAME,
        expected,
        between=partial(check_certificates, place.cluster, NAME),
        operator=place.operator,
        spec=ENCRYPTED,
        change=ENCRYPTED_CHANGE,
    )


@pytest.mark.timeout(600)
def test_a_crash_after_every_write_leaves_certificates_that_fit(make_place, encrypted):
    expected, writes = encrypted
    place = make_place()
    place.proxy.kill_at = range(1, 10 * writes)
    place.operator.start()
    lived(place, expected)
    assert place.operator.starts >= 6
    assert len(place.proxy.writes) <= 3 * writes


@pytest.mark.timeout(600)
def test_lost_responses_leave_certificates_that_fit(make_place, encrypted):
    expected, writes = encrypted
    place = make_place()
    place.operator.start()
    place.proxy.faults = LOST
    lived(place, expected)
    place.proxy.faults = NO_FAULTS
    assert len(place.proxy.writes) <= 3 * writes
