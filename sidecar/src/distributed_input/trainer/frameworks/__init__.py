"""Batches as the frameworks other than TensorFlow take them. Each is imported when it is used."""
