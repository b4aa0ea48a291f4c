"""What differs between systems: calls that only Linux has, and Unix sockets."""
