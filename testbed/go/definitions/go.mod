// The definitions of custom resources on the pages: nothing is compiled.
module tftraining.dev/tests/definitions

go 1.26.0

require (
	github.com/argoproj/argo-workflows/v4 v4.0.5
	github.com/fluxcd/kustomize-controller v1.9.0
	github.com/fluxcd/source-controller v1.9.0
	github.com/kubeflow/katib v0.19.0
	github.com/kubeflow/training-operator v1.8.1
)
