"""The frameworks other than TensorFlow, in an environment of their own: `make frameworks`.

`environment` creates it. The other modules are programs that tests run in it, with the folder of a
sidecar in the environment: each trains with one framework, and ends and resumes the training.
"""
