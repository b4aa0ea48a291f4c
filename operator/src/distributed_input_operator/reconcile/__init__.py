"""What to do about an input: a snapshot in, the desired objects and a status out. Pure.

claims         what an input requests from the cluster's budgets
plan           what to write
conditions     what holds, why, and what the user can do
status         the status to write, and how often
policy_status  the status of the cluster's InputPolicy
"""
