# Two images; a builder without BuildKit suffices:
#   docker build --target operator .   the operator; also contains the cleanup and the launcher, which run in training pods
#   docker build --target trainer .    TensorFlow and the training programs
# BASE_IMAGE is any Debian-like image; Python comes from the image, or from its package manager if the image has none.
# REQUIREMENTS of the trainer:
#   requirements/trainer-gpu.txt   for GPUs: includes NVIDIA's CUDA libraries, much larger. Not tested on a GPU
#   requirements/trainer.txt       for a BASE_IMAGE with the CUDA libraries; on any other it trains on the CPU
#   requirements/trainer-cpu.txt   without CUDA code, a third smaller; amd64 only
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS python
RUN python3 -c 'import ensurepip, venv' 2>/dev/null \
 || { apt-get update && apt-get install --yes --no-install-recommends python3 python3-venv ca-certificates \
      && rm -rf /var/lib/apt/lists/*; }
# No process of these images changes its user: programs with the setuid or setgid bit (su, mount) only help an intruder.
RUN find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
# A virtual environment, because Debian's own Python refuses pip. The .pth file finds the code below with any PYTHONPATH of
# a pod.
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/python -c 'import site; open(site.getsitepackages()[0] + "/tftraining.pth", "w").write("/opt/tftraining\n")'
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1

FROM python AS operator
COPY requirements/operator.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.txt \
 && rm /tmp/requirements.txt
COPY api operator trainer /opt/tftraining/
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["python", "-m", "tftraining_operator"]

FROM python AS trainer
ARG REQUIREMENTS=requirements/trainer.txt
COPY ${REQUIREMENTS} /tmp/requirements.txt
# Only compilers against TensorFlow need the headers and libclang. The bytecode stays: without it every start of a process
# compiles TensorFlow's modules again (measured: 8 s to import instead of 3), because a pod's user cannot write here.
RUN pip install --no-cache-dir --no-deps --require-hashes -r /tmp/requirements.txt \
 && cd "$(python -c 'import site; print(site.getsitepackages()[0])')" \
 && rm -rf /tmp/requirements.txt tensorflow/include clang \
 && find numpy scipy sklearn -type d -name tests -prune -exec rm -rf {} +
# Pods choose the user, so every user may write to the home and working directory, as to /tmp.
RUN mkdir -m 1777 /home/trainer
ENV HOME=/home/trainer
COPY trainer /opt/tftraining/
USER 1000:1000
WORKDIR /home/trainer
CMD ["python", "-m", "tftraining.examples.multi_worker_mnist"]
