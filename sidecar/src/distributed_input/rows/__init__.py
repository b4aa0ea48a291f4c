"""Representation of rows: element specs, buffers, blocks on the wire, digests.

Row, element, leaf
    A *row* is the unit that is delivered, counted and checked. An *element* is what the dataset's
    iterator returns: one row, or a batch of rows. A row is a nested structure of *leaves*
    (`structure`); a leaf is one dense, ragged or sparse tensor (`elements.Leaf`).

Column
    Each leaf is stored in one or more *columns* (`elements.Column`). A *fixed-width* column has
    the same number of bytes for every row. A *variable-width* column has a length for each row.
    Code that moves rows uses the columns only and does not read the values.

        dense, all sizes known        values: fixed
        dense, unknown sizes          dims: fixed (int32); values: variable
        dense, unknown rank           dims: variable (int32); values: variable
        ragged                        one lengths column for each inner level; values: variable
        sparse                        shape: fixed (int64); indices: variable; values: variable
        any of these, of strings      additionally the uint32 length of each string

Run
    A *run* is a number of consecutive rows as a list of 1-D uint8 buffers, in the order of the
    columns. A fixed-width column has one buffer of `rows * row_bytes` bytes. A variable-width
    column has two buffers: a uint32 byte length for each row, then the bytes of all rows. All
    numbers are little-endian. Slices of a run are views of its buffers (`runs`).

        column x (fixed, 8 bytes)     [x0 x0 x0 x0 x0 x0 x0 x0 x1 x1 ...]
        column y (variable)           [len(y0) len(y1) ...]  [y0 ... y1 ...]

Block
    A *block* is a run with its position in the split, a digest for each row and flags about the
    stream (`blocks.RowBlock`). On the wire it is one protobuf message whose payload is the buffers
    of the run, one after the other.

Digest
    A row's digest depends on its bytes and its index in the split (`digest`). A `prefix.Prefix`
    adds the digests of the first rows of a split, and compares two productions of these rows.

`encode` converts elements to runs, `decode` converts runs to numpy arrays. This package imports
numpy and never TensorFlow; `distributed_input.graph.type_specs` converts TensorFlow's specs.
"""
