"""Fourth stage of the sidecar: inputs, their jobs, the dispatcher, and trainers' sessions."""
