"""The models of the resources: fields, validation, defaults, and reading them from YAML.

The custom resource definitions are generated from these models. Needs pydantic and PyYAML, so only
the runner and the operator import it.
"""
