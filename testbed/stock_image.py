"""An image like TensorFlow's own: Python, TensorFlow and Keras 3, nothing of this project, and root as its user.

It has the large layers of the trainer image, so that nodes that are built here need no further layer. What it must not
have is removed above them.
"""

from collections.abc import Sequence

from . import loading
from .docker import Engine
from .shell import lock, step

# As the examples call TensorFlow's image.
NAME = "tensorflow/tensorflow:2.21.0"
DOCKERFILE = """FROM {trainer}
USER root
RUN rm -rf /opt/tftraining /home/trainer && cd "$(python -c 'import site; print(site.getsitepackages()[0])')" \
 && rm -rf tftraining.pth tf_keras sklearn scipy && ! python -c 'import tftraining'
ENV HOME=/
WORKDIR /
"""


def load(engine: Engine, nodes: Sequence[str], trainer: str) -> None:
    """Bring the image into the nodes, by the name of TensorFlow's own, from the image `trainer`."""
    image = f"tftraining/stock:{trainer.rpartition(':')[2]}"
    with lock("stock-image"):
        if not engine.has_image(image):
            with step("building an image without code of this project"):
                engine.docker("build", "--quiet", "--tag", image, "-", stdin=DOCKERFILE.format(trainer=trainer))
        loading.load(engine, nodes, [image])
    loading.rename(engine, nodes, {image: NAME})
