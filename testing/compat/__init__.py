"""What the references of tf.distribute input and tf.data service show, shown with our input.

docs/compatibility.md is made of these tests and of what came of them:

    make compat         run them; fails where one fails or the page is not what they give
    make compat-page    run them and write the page

To add a row, mark the test that shows it, and run `make compat-page`:

    @behaviour(
        Reference.ITERATOR,
        shows="`get_next()` raises `tf.errors.OutOfRangeError` at the end",
        call="`iter(train.distribute(strategy)).get_next()`",
    )
    def test_get_next_raises_out_of_range_at_the_end(sidecar): ...

Several tests with the same `reference` and `shows` are one row; a test may have several marks.
`needs` is hardware that is absent where the tests run, for the part of the behaviour that the test
therefore leaves out; `note` is where ours differs. A test that cannot run says why with
`pytest.skip`, and the page says it. Every test here is marked. Rows stand in the order of the files
and of the tests within; what is no compatibility belongs into tests/integration.
"""
