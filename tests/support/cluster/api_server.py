"""The test cluster's API server, as the operator's own connection reaches it from outside the cluster."""

import contextlib
from collections.abc import AsyncIterator

from kubernetes.aio import config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from testbed.kube import Kube
from tftraining_api.kube.api import Api


@contextlib.asynccontextmanager
async def connected(kube: Kube) -> AsyncIterator[Api]:
    """A connection by the cluster's kubeconfig, closed when the block ends."""
    configuration = Configuration()
    await config.load_kube_config(config_file=str(kube.kubeconfig), client_configuration=configuration)
    api = Api(RESTClientObject(configuration))
    try:
        yield api
    finally:
        await api.close()
