"""Fuzzing of every parser that reads from the network or from a folder that others write.

A target is a parser with valid inputs. Input number i of a target is a function of the seed, the
target's name and i: a change of a valid input. A parser may return, or raise the errors that it
declares. Anything else is a finding: another error, the end of the process, more than a few seconds
of CPU time, or memory that does not follow from the size of the input.

    python -m testing.fuzz --n 1000000 --seed 0
    python -m testing.fuzz --only rows/blocks --seed 0 --input 4711     one input again
"""
