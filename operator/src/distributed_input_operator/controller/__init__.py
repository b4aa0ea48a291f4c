"""The control loop: events in, one reconciliation at a time for each input.

control_loop     watches, queue and workers
work_queue       the keys that are due
reconcile_input  one reconciliation: observe, plan, apply, report
context          what all reconciliations share
observe          the cluster's state as a frozen snapshot
ledger           claims and grants of all inputs
budgets          reconciliation of the policy, and reallocation
dispatchers      measurements of dispatchers
dispatcher_access  credentials for dispatchers
tokens           the inputs' tokens and private keys
resync           periodic comparison of the store with the API server
input_metrics    gauges of inputs and budgets
leader, health   leader election, and the health page
"""
