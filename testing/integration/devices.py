"""Two logical CPUs in this process, for strategies with two replicas.

Import this module before TensorFlow initializes its devices.
"""

from __future__ import annotations

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

CPUS = ["CPU:0", "CPU:1"]
