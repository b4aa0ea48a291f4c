"""The controller that runs `DistributedInput` resources on Kubernetes.

It starts the processes of `distributed_input` as pods and imports only its contract package,
`distributed_input.api`.
"""
