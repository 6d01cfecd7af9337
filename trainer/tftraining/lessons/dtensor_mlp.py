"""A perceptron with DTensor on eight parts of the CPU. The mesh has copies of the model, and parts of each copy.

`tftj run examples/lessons/dtensor-mlp.yaml` reaches a test accuracy of 0.97.
"""

import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle
from tensorflow.experimental import dtensor
from tensorflow.experimental.dtensor import UNSHARDED, DVariable, Layout, call_with_layout

DIRECTORY = os.environ.get("TFTRAINING_DIR", "training/lesson-dtensor-mlp")
# The copies share each batch, the parts of a copy share its weights: --env LAYOUT=model.
COPIES, PARTS = {"data": (8, 1), "model": (1, 8), "hybrid": (4, 2)}[os.environ.get("LAYOUT", "hybrid")]
EPOCHS, STEPS_PER_EPOCH, RATE, BETA_1, BETA_2 = 10, 15, 0.002, 0.9, 0.999
eight = [tf.config.LogicalDeviceConfiguration()] * 8
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], eight)
mesh = dtensor.create_mesh([("batch", COPIES), ("model", PARTS)], devices=[f"CPU:{index}" for index in range(8)])


def dense(shape, layout):
    """The weight and the bias of a layer. The layout names the mesh dimension that divides each dimension, if any."""
    uniform, limit = tf.function(tf.random.stateless_uniform), (6 / sum(shape)) ** 0.5
    weight = DVariable(call_with_layout(uniform, layout, shape, seed=shape, minval=-limit, maxval=limit))
    return weight, DVariable(call_with_layout(tf.zeros, layout.delete([0]), shape[1:]))


# The outputs of the first layer and the inputs of the second are divided: one sum joins the parts of a copy.
hidden, output = Layout([UNSHARDED, "model"], mesh), Layout(["model", UNSHARDED], mesh)
variables = [*dense((64, 256), hidden), *dense((256, 10), output)]
means, squares = ([DVariable(call_with_layout(tf.zeros, v.layout, v.shape)) for v in variables] for _ in range(2))
step = DVariable(call_with_layout(tf.zeros, Layout([], mesh), ()))


def apply_gradients(gradients):
    """One step of Adam by Kingma and Ba (2015); the moments have the layouts of their variables."""
    t = step + 1.0
    rate = RATE * tf.sqrt(1 - BETA_2**t) / (1 - BETA_1**t)
    for variable, gradient, m, v in zip(variables, gradients, means, squares, strict=True):
        mean, square = BETA_1 * m + (1 - BETA_1) * gradient, BETA_2 * v + (1 - BETA_2) * gradient**2
        variable.assign_sub(rate * mean / (tf.sqrt(square) + 1e-7))
        m.assign(mean)
        v.assign(square)
    step.assign(t)


def predict(x):
    return tf.matmul(tf.nn.relu(tf.matmul(x, variables[0]) + variables[1]), variables[2]) + variables[3]


@tf.function
def train_step(x, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, predict(x)))
    apply_gradients(tape.gradient(loss, variables))  # DTensor has summed them over the copies
    return loss


def on_mesh(array, *dimensions):
    layout = Layout([*dimensions, *[UNSHARDED] * (array.ndim - len(dimensions))], mesh)
    return dtensor.relayout(dtensor.copy_to_mesh(array, Layout.replicated(mesh, array.ndim)), layout)


images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
images, epoch = (images / 16).astype("float32"), tf.Variable(0)
checkpoint = tf.train.Checkpoint(variables=variables, means=means, squares=squares, step=step, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, f"{DIRECTORY}/checkpoints", max_to_keep=2)
if manager.restore_or_initialize():
    print(f"resumed after epoch {epoch.numpy()}", flush=True)
while epoch < EPOCHS:
    for x, y in zip(np.split(images[:1440], STEPS_PER_EPOCH), np.split(labels[:1440], STEPS_PER_EPOCH), strict=True):
        loss = train_step(on_mesh(x, "batch"), on_mesh(y, "batch"))
    logits = dtensor.unpack(predict(on_mesh(images[1440:])))[0]  # replicated, so each device has all of it
    epoch.assign_add(1)
    manager.save()
    right = np.argmax(logits, axis=1) == labels[1440:]
    print(f"epoch {epoch.numpy()}: loss {loss.numpy():.4f} test accuracy {right.mean():.4f}", flush=True)
