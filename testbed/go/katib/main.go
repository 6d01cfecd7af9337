// Command katib reads an Experiment from standard input, validates it as Katib's webhook does, and prints the object that
// Katib makes of the trialTemplate for the given parameters: `katib learning_rate=0.01 <experiment.yaml`.
//
// Left out is what an installation decides: the images of the algorithms and of the collectors.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	config "github.com/kubeflow/katib/pkg/apis/config/v1beta1"
	common "github.com/kubeflow/katib/pkg/apis/controller/common/v1beta1"
	experiments "github.com/kubeflow/katib/pkg/apis/controller/experiments/v1beta1"
	"github.com/kubeflow/katib/pkg/controller.v1beta1/experiment/manifest"
	"github.com/kubeflow/katib/pkg/webhook/v1beta1/experiment/validator"
	"sigs.k8s.io/yaml"
)

type generator struct{ manifest.Generator }

func (generator) GetSuggestionConfigData(string) (config.SuggestionConfig, error) {
	return config.SuggestionConfig{}, nil
}

func (generator) GetMetricsCollectorConfigData(common.CollectorKind) (config.MetricsCollectorConfig, error) {
	return config.MetricsCollectorConfig{}, nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "katib:", err)
		os.Exit(1)
	}
}

func run(parameters []string) error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	experiment := &experiments.Experiment{}
	if err := yaml.UnmarshalStrict(text, experiment); err != nil {
		return err
	}
	experiment.SetDefault()
	made := generator{manifest.New(nil)}
	if found := validator.New(made).ValidateExperiment(experiment, nil); len(found) > 0 {
		return found.ToAggregate()
	}
	trial, err := made.GetRunSpecWithHyperParameters(experiment, experiment.Name+"-trial", "default", assignments(parameters))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(trial)
}

func assignments(parameters []string) []common.ParameterAssignment {
	found := []common.ParameterAssignment{}
	for _, parameter := range parameters {
		name, value, _ := strings.Cut(parameter, "=")
		found = append(found, common.ParameterAssignment{Name: name, Value: value})
	}
	return found
}
