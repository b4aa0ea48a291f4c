"""The subcommands of `distributed-input` that people call: run, inject and status."""
