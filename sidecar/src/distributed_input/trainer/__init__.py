"""The library that trainers import.

TensorFlow is imported only by `tensorflow/`, and only when a trainer uses it.
"""
