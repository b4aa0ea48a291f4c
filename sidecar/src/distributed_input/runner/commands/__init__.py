"""The subcommands `run` and `status` of `distributed-input`."""
