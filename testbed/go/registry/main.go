// Command registry serves an empty registry of OCI images in memory, without TLS, on each address that it is given
// (HOST:PORT). The registry program of the same library serves this machine only, on localhost.
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	handler, failed := registry.New(), make(chan error)
	for _, address := range os.Args[1:] {
		go func() { failed <- http.ListenAndServe(address, handler) }()
	}
	log.Fatal(<-failed)
}
