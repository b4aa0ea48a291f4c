"""TensorFlow's own tf.data service, started with what it needs to serve other pods.

For programs that call `tf.data.experimental.service.distribute` and know nothing of us. What it
guarantees is its own: a worker that dies loses elements of a DYNAMIC epoch, its iterators cannot be
checkpointed, and nothing here fences, checks or resumes.
"""
