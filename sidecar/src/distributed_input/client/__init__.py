"""What trainers import. TensorFlow is imported only by what needs it."""
