// Command conditions says whether the condition of a workflow engine holds for an object: with the libraries by which
// Argo Workflows (label selectors over paths of gjson) and Katib (gjson alone) evaluate them. It reads JSON documents from
// standard input, and prints one answer for each.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/labels"
)

type question struct {
	Engine    string          `json:"engine"`
	Condition string          `json:"condition"`
	Object    json.RawMessage `json:"object"`
}

func main() {
	if err := answerAll(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conditions:", err)
		os.Exit(1)
	}
}

func answerAll(questions io.Reader, answers io.Writer) error {
	lines, print := json.NewDecoder(questions), json.NewEncoder(answers)
	for {
		var asked question
		if err := lines.Decode(&asked); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		holds, err := asked.holds()
		if err != nil {
			return err
		}
		if err := print.Encode(holds); err != nil {
			return err
		}
	}
}

func (asked question) holds() (bool, error) {
	switch asked.Engine {
	case "argo":
		selector, err := labels.Parse(asked.Condition)
		if err != nil {
			return false, err
		}
		return selector.Matches(paths{asked.Object}), nil
	case "katib":
		found := gjson.GetBytes(asked.Object, asked.Condition)
		return found.IsObject() || found.IsArray() && len(found.Array()) > 0, nil
	}
	return false, fmt.Errorf("no engine %q", asked.Engine)
}

// The fields of an object as labels, whose names are paths.
type paths struct{ object []byte }

func (p paths) Has(path string) bool   { return gjson.GetBytes(p.object, path).Exists() }
func (p paths) Get(path string) string { return gjson.GetBytes(p.object, path).String() }
func (p paths) Lookup(path string) (string, bool) {
	return p.Get(path), p.Has(path)
}
