"""What the graph of a dataset shows without running it. Tables have what is known to be safe."""
