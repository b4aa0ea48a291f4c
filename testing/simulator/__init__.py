"""A cluster of inputs in simulated time, to compare scaling policies on the same traces.

world      trainers, workers, start-up, drains, spot losses and noise, as discrete events
traces     the events: loads that change, trainers that start and end, budgets
policies   the operator's policy, which calls the operator's own functions
baselines  other policies to compare with
oracle     policies with full knowledge
results    the outcome: stall, worker-hours, oscillations, time to settle
plots      charts of the outcome

`python -m testing.simulator` writes the table and charts of docs/scaling.md.
"""
