"""Other loaders of the same local files: PyTorch's DataLoader, Grain and MosaicML Streaming.

Run `python -m testing.bench.loaders`. Each reads the same rows with four worker processes, in
random order and in batches of 64, on one host. The rows are those of `shards.py`. The modules
`memory` and `resume` are commands, too.
"""
