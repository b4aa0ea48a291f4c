"""What to do about an input: a snapshot in, the desired objects and a status out. Pure.

claims         what an input requests from the cluster's budgets
plan           what to write
conditions     what holds, why, and what the user can do
live_status    the part of the status that changes all the time
status         the status to write
policy_status  the status of the cluster's InputPolicy
"""
