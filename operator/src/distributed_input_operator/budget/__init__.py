"""How the cluster's workers are divided among inputs under an `InputPolicy`. Pure.

claim         what an input requests, and the grant that it gets
usage         how much of each budget claims use
allocation    the division, from budgets and claims to grants
explanation   why an input gets fewer workers than it requests
pod_requests  what one pod requests, as budgets count it
"""
