"""The models of DistributedInput, apiVersion distributed-input.dev/v1beta1.

Processes use v1alpha1, which the API server stores. `distributed_input.api.resource.conversion`
converts between the versions.
"""
