"""The control loop: events in, one reconciliation at a time for each input.

control_loop     watches, queue and workers
work_queue       the keys that are due
reconcile_input  one reconciliation: observe, plan, apply, report
context          what all reconciliations share
observe          the cluster's state as a frozen snapshot
ledger           claims and grants of all inputs
budgets          reconciliation of the policy, and reallocation
dispatchers      measurements of dispatchers
channels         access to dispatchers, and the connections to them
status_answer    their answers, read within bounds
looks            measurements between two reconciliations
tokens           the inputs' tokens and private keys
input_metrics    gauges of inputs and budgets
rollouts         whose pods get the operator's new template now
leader           leader election
"""
