"""How a worker sends a split: blocks of rows, shared by the streams that want the same rows."""
