"""An image like TensorFlow's own: Python, TensorFlow and Keras 3, nothing of this project, and root as its user.

It has the large layers of the trainer image, so that nodes that are built here need no further layer. What it must not
have is removed above them.
"""

from . import loading
from .nodes import Nodes
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


def load(nodes: Nodes, trainer: str) -> None:
    """Bring the image into the nodes that take pods, by the name of TensorFlow's own, from the image `trainer`."""
    image = f"tftraining/stock:{trainer.rpartition(':')[2]}"
    with lock("stock-image"):
        if not nodes.engine.has_image(image):
            with step("building an image without code of this project"):
                nodes.engine.docker("build", "--quiet", "--tag", image, "-", stdin=DOCKERFILE.format(trainer=trainer))
        loading.load(nodes.engine, nodes.workers(), [image])
    loading.rename(nodes.engine, nodes.workers(), {image: NAME})
