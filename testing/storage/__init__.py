"""Object storage for tests: real servers, a proxy that makes them fail, and workers that read."""
