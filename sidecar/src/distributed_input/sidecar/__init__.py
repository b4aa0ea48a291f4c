"""The sidecar: it fetches one trainer's share of its inputs into shared memory.

Rows pass through three stages. `streams` reads blocks of rows from the workers, `steps` arranges
them into the steps of an epoch, and `delivery` copies them into shared memory and sends them to the
trainer. `inputs` connects the stages with the dispatcher and with the trainer's sessions.
"""
