// Command promql checks alerting rules as `promtool check rules` does, by the same package of Prometheus, and lists the
// metrics of PromQL expressions. It is built in a fraction of promtool's time.
//
//	promql rules FILE    the problems of the file, one a line
//	promql selectors     reads expressions from standard input, one JSON string a line, and prints for each one a JSON
//	                     list of its selectors: metric, label matchers; and the labels by which the expression groups
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

type selectors struct {
	Metrics []metric `json:"metrics"`
	Groups  []string `json:"groups"`
}

type metric struct {
	Name     string            `json:"name"`
	Matchers map[string]string `json:"matchers"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	promql := parser.NewParser(parser.Options{})
	switch {
	case len(arguments) == 2 && arguments[0] == "rules":
		_, problems := rulefmt.ParseFile(arguments[1], false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
		return errors.Join(problems...)
	case len(arguments) == 1 && arguments[0] == "selectors":
		return answerAll(promql, os.Stdin, os.Stdout)
	}
	return errors.New("usage: promql rules FILE, or promql selectors")
}

func answerAll(promql parser.Parser, expressions io.Reader, answers io.Writer) error {
	lines, print := json.NewDecoder(expressions), json.NewEncoder(answers)
	for {
		var text string
		if err := lines.Decode(&text); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		expression, err := promql.ParseExpr(text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if err := print.Encode(selectorsOf(expression)); err != nil {
			return err
		}
	}
}

func selectorsOf(expression parser.Expr) selectors {
	found := selectors{Metrics: []metric{}, Groups: []string{}}
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			matchers := map[string]string{}
			for _, matcher := range node.LabelMatchers {
				if matcher.Name != labels.MetricName {
					matchers[matcher.Name] = matcher.Value
				}
			}
			found.Metrics = append(found.Metrics, metric{node.Name, matchers})
		case *parser.AggregateExpr:
			found.Groups = append(found.Groups, node.Grouping...)
		}
		return nil
	})
	return found
}
