// Command argo-lint is `argo lint --offline --kinds=workflows FILE…`. The command line of Argo itself cannot be built from
// its Go module, which lacks the files of the user interface; its linter can.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/argoproj/argo-workflows/v3/cmd/argo/lint"
	"github.com/argoproj/argo-workflows/v3/pkg/apiclient"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "argo-lint:", err)
		os.Exit(1)
	}
}

func run(files []string) error {
	ctx, client, err := apiclient.NewClientFromOpts(apiclient.Opts{
		Offline: true, OfflineFiles: files, Context: context.Background(),
	})
	if err != nil {
		return err
	}
	options := lint.LintOptions{Files: files, Strict: true, DefaultNamespace: "default", Printer: os.Stdout}
	return lint.RunLint(ctx, client, []string{"workflows"}, "simple", true, options)
}
