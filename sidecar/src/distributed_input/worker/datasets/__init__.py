"""What a worker reads: datasets by entry point or graph, and what is cached of them."""
