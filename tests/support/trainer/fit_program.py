"""A program of one process with `fit` and BackupAndRestore: `fit_program.py KERAS STRATEGY` (none or mirrored)."""

import importlib
import os
import sys
from contextlib import nullcontext

import tensorflow as tf
from sklearn.datasets import load_digits

keras = importlib.import_module(sys.argv[1])
cpu, two = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
images, labels = load_digits(return_X_y=True)
dataset = tf.data.Dataset.from_tensor_slices((images / 16, labels)).shuffle(2000).repeat().batch(64)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope() if sys.argv[2] == "mirrored" else nullcontext():
    print(f"replicas in sync: {tf.distribute.get_strategy().num_replicas_in_sync}", flush=True)
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
backup = keras.callbacks.BackupAndRestore(f"{os.environ['TFTRAINING_DIR']}/backup")
model.fit(dataset, epochs=8, steps_per_epoch=100, callbacks=[backup], verbose=2)
