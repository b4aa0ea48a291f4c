"""How the cluster's workers are divided among inputs under an `InputPolicy`. Pure.

claim         what an input requests, the grant that it gets, and how much of budgets claims use
allocation    the division, from budgets and claims to grants, and why a grant is smaller
pod_requests  what one pod requests, as budgets count it
"""
