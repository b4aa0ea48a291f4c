"""Threads, clocks, sockets and gRPC as tasks of one seeded scheduler.

scheduler     tasks, processes, virtual time, seeded choices
primitives    the modules `threading` and `time`
sockets       the modules `socket` and `select`: packets between sidecar and trainer
network       connections: latency, partitions, keepalive
rpc           gRPC channels for the product's own stubs; `rpc_server` for its handlers
stand_in      the parts of TensorFlow that the worker's modules import
"""
