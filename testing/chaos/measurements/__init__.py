"""Programs that write the tables of docs/faults.md. Each runs for several minutes."""
