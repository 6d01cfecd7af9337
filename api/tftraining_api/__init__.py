"""The TFTrainingJob API, for operator and client: types, manifests of the children, access to the API server."""
