"""The dispatcher: the registry of workers, consumers, jobs and traced datasets of one input.

Its state is soft: after a restart without state, it collects everything again from heartbeats and
registrations. No rows pass through it, and it needs no TensorFlow. `state` and the modules that it
uses are pure, with the time as an argument. `service` connects them to the wire.
"""
