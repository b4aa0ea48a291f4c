"""A cluster of inputs in simulated time, to compare policies of scaling on the same traces.

world     trainers, workers, start-up, drains, spot losses, noise: discrete events, exact in between
traces    what happens: loads that shift, trainers that come and go, budgets
policies  who decides: ours (the operator's own functions, not copies) and what it is compared with
results   what came of it: stall, worker-hours, oscillations, time to settle
plots     pictures of that

`python -m testing.simulator` writes the table and pictures of docs/scaling.md.
"""
