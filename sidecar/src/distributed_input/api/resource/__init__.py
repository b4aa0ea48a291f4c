"""The models of the resources DistributedInput and InputPolicy: fields, defaults and validation.

`crd` and `policy_crd` generate the custom resource definitions from these models. `parse` reads
YAML text, and `load` reads YAML files. This package needs pydantic and PyYAML, so only the runner
and the operator import it.
"""
