// A server that answers TensorFlow's requests as Google Cloud Storage does: fake-gcs-server with one bucket in memory,
// on port 443 of an address that the clients' /etc/hosts gives Google's names.
//
// With -token it answers only requests with that token, and gives it away on port 80, as the metadata server of Google's
// machines and of workload identity does. It logs each token that it gives and each request that it refuses.
//
// TensorFlow sends "Transfer-Encoding: identity" with a request without a body. Google accepts this, but a server of
// Go 1.15 or later answers 501. So the listener gives the header another name of the same length.
package main

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

const tokenPath = "/computeMetadata/v1/instance/service-accounts/default/token"

var refused, renamed = []byte("Transfer-Encoding: identity\r\n"), []byte("X-Without-A-Body-: identity\r\n")

type listener struct{ net.Listener }

type connection struct{ net.Conn }

func (l listener) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return connection{accepted}, nil
}

// curl writes the headers of a request at once, so they come in one read.
func (c connection) Read(buffer []byte) (int, error) {
	count, err := c.Conn.Read(buffer)
	copy(buffer, bytes.ReplaceAll(buffer[:count], refused, renamed))
	return count, err
}

func guarded(token string, handler http.Handler) http.HandlerFunc {
	return func(answer http.ResponseWriter, request *http.Request) {
		if token != "" && request.Header.Get("Authorization") != "Bearer "+token {
			log.Printf("refused: %s %s", request.Method, request.URL.Path)
			answer.WriteHeader(http.StatusUnauthorized)
			return
		}
		request.Header.Set("X-Forwarded-Proto", "https") // the address for an upload's content begins with it
		handler.ServeHTTP(answer, request)
	}
}

func metadata(token string) http.HandlerFunc {
	return func(answer http.ResponseWriter, request *http.Request) {
		if request.URL.Path != tokenPath || request.Header.Get("Metadata-Flavor") != "Google" {
			answer.WriteHeader(http.StatusNotFound)
			return
		}
		log.Print("token given")
		fmt.Fprintf(answer, `{"access_token": %q, "expires_in": 3600, "token_type": "Bearer"}`, token)
	}
}

func main() {
	address := flag.String("address", "127.0.0.1", "address to listen on")
	token := flag.String("token", "", "token that each request must have (default: none)")
	certificate := flag.String("certificate", "", "file with the certificate of Google's names")
	key := flag.String("key", "", "file with its key")
	bucket := flag.String("bucket", "", "name of the bucket")
	flag.Parse()
	log.SetFlags(0)

	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener: true,
		PublicHost: "storage.googleapis.com",
		Writer:     os.Stdout, // a line for each request
	})
	if err != nil {
		log.Fatal(err)
	}
	server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: *bucket})
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	if *token != "" {
		go func() { log.Fatal(http.ListenAndServe(net.JoinHostPort(*address, "80"), metadata(*token))) }()
	}
	plain, err := tls.Listen("tcp", net.JoinHostPort(*address, "443"), &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener{plain}, guarded(*token, server.HTTPHandler())))
}
