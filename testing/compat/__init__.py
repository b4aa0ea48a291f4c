"""Tests of the documented behaviour of tf.distribute input and tf.data service.

docs/compatibility.md is generated from the tests in tests/compat and their outcomes:

    make compat         run the tests; fails if one fails or the page is out of date
    make compat-page    run the tests and write the page

To add a row, mark the test that shows the behaviour, and run `make compat-page`:

    @behaviour(
        Reference.ITERATOR,
        shows="`get_next()` raises `tf.errors.OutOfRangeError` at the end",
        call="`iter(train.distribute(strategy)).get_next()`",
    )
    def test_get_next_raises_out_of_range_at_the_end(sidecar): ...

Several tests with the same `reference` and `shows` make one row. A test may have several marks.
`needs` names hardware that the tests do not have, for the untested part of the behaviour. `note`
describes a difference. A test that cannot run calls `pytest.skip` with the reason, and the page
shows it. Every test in tests/compat is marked. The rows are in the order of the files and their
tests. Tests of other behaviour belong to tests/integration.
"""
