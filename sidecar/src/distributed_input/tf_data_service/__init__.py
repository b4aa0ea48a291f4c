"""TensorFlow's own tf.data service, configured to serve other pods.

It is for programs that call `tf.data.experimental.service.distribute` and do not use this package.
Its guarantees are its own: a worker that ends loses elements of a DYNAMIC epoch, its iterators
cannot be checkpointed, and it neither fences, verifies nor resumes.
"""
