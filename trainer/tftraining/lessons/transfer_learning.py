"""Transfer learning on folders of pictures: PICTURES/train/<class>/*.png and PICTURES/test/<class>/*.png.

`tftj run examples/lessons/transfer-learning.yaml` reaches a test accuracy of 0.93 on pictures of digits.
STAGE=head trains new layers on top of MobileNetV2 with the WEIGHTS of a file or imagenet (downloaded), and all layers
without WEIGHTS. STAGE=fine-tune reads the model of the first stage, and trains all of it with a lower rate.
"""

import os

import keras
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.utils import shuffle
from tqdm import tqdm

DIRECTORY = os.environ.get("TFTRAINING_DIR", "training/lesson-transfer-learning")
PICTURES = os.environ.get("PICTURES", f"{DIRECTORY}/pictures")
STAGE, WEIGHTS = os.environ.get("STAGE", "head"), os.environ.get("WEIGHTS")
EPOCHS, SIZE, RATE = 5, 32, {"head": 0.005, "fine-tune": 0.0005}[STAGE]


def write_pictures():
    images, labels = shuffle(*load_digits(return_X_y=True), random_state=0)
    for number, (image, label) in enumerate(zip(images.reshape(-1, 8, 8, 1), labels, strict=True)):
        folder = f"{PICTURES}.part/{'train' if number < 1500 else 'test'}/{label}"
        tf.io.gfile.makedirs(folder)
        tf.io.write_file(f"{folder}/{number:04}.png", tf.io.encode_png((image * 15).astype("uint8")))
    tf.io.gfile.rename(f"{PICTURES}.part", PICTURES)  # at the end: a killed program leaves no half of them


def read_pictures(part, class_names=None):
    """Batches of pictures (0 to 255) with a column of labels for each class, a folder of PICTURES/<part>."""
    arguments = {"class_names": class_names, "label_mode": "categorical", "image_size": (SIZE, SIZE), "seed": 1}
    return keras.utils.image_dataset_from_directory(f"{PICTURES}/{part}", **arguments, verbose=False)


def make_model(classes):
    """MobileNetV2 with new layers on top, which end in a probability for each class."""
    base = keras.applications.MobileNetV2((SIZE, SIZE, 3), alpha=0.35, include_top=False, weights=WEIGHTS)
    base.trainable = WEIGHTS is None
    for layer in base.layers if WEIGHTS is None else ():
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9  # with the default of 0.999 the network predicts nothing for thousands of steps
    inputs = [keras.Input((SIZE, SIZE, 3)), keras.layers.Rescaling(1 / 127.5, -1)]
    head = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(512, "relu"), keras.layers.Dense(classes)]
    return keras.Sequential([*inputs, base, *head, keras.layers.Softmax()])


if not tf.io.gfile.exists(PICTURES):
    write_pictures()
train = read_pictures("train")
test = read_pictures("test", train.class_names)
if STAGE == "head":
    model = make_model(len(train.class_names))
else:
    model = keras.models.load_model(f"{DIRECTORY}/head.keras")
    model.trainable = True
    for layer in model.layers[1].layers:  # of MobileNetV2
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False  # and so called with training=False: a few pictures would spoil its statistics
model.compile(keras.optimizers.Adam(RATE), keras.losses.CategoricalCrossentropy(), metrics=["accuracy"])
model.optimizer.build(model.trainable_variables)  # a checkpoint restores only variables that exist
epoch = tf.Variable(0, trainable=False)
checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, f"{DIRECTORY}/checkpoints-{STAGE}", max_to_keep=2)
if manager.restore_or_initialize():
    print(f"resumed after epoch {epoch.numpy()}", flush=True)
while epoch < EPOCHS:
    means = {"loss": keras.metrics.Mean(), "accuracy": keras.metrics.Mean()}
    bar = tqdm(train, f"epoch {epoch.numpy() + 1}/{EPOCHS}")
    for images, labels in bar:
        logs = model.train_on_batch(images, labels, return_dict=True)
        for name, mean in means.items():
            mean.update_state(logs[name], len(labels))  # by the number of pictures: the last batch has fewer
        bar.set_postfix({name: f"{mean.result():.4f}" for name, mean in means.items()})
    result = model.evaluate(test, verbose=0, return_dict=True)
    epoch.assign_add(1)
    manager.save()
    print(f"epoch {epoch.numpy()}: test loss {result['loss']:.4f} test accuracy {result['accuracy']:.4f}", flush=True)
model.save(f"{DIRECTORY}/{STAGE}.keras")
