"""Other projects' controllers, built from their Go modules, beside a real API server."""
