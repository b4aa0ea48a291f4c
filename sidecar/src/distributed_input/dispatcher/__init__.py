"""The dispatcher: who is there, which job runs, what is known of it, and traced datasets.

All of it is soft state: a dispatcher that restarts empty learns everything anew from the next
heartbeats and registrations. No rows pass through it, and it needs no TensorFlow. `state` and
what it is made of are pure (the time is passed in); `service` puts them on the wire.
"""
