// Command kstatus says what the library of that name, by which Helm, Flux and others wait, makes of Kubernetes objects:
// it reads them from standard input, one JSON document a line, and prints the status, reason and message of each.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type answer struct {
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func main() {
	if err := answerAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func answerAll(objects io.Reader, answers io.Writer) error {
	lines, print := json.NewDecoder(objects), json.NewEncoder(answers)
	for {
		var raw json.RawMessage
		if err := lines.Decode(&raw); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(raw); err != nil {
			return err
		}
		result, err := status.Compute(&object)
		if err != nil {
			return err
		}
		found := answer{Status: result.Status.String(), Message: result.Message}
		if len(result.Conditions) > 0 {
			found.Reason = result.Conditions[0].Reason
		}
		if err := print.Encode(found); err != nil {
			return err
		}
	}
}
