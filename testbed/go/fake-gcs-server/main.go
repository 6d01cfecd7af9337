// A server that answers TensorFlow's requests as Google Cloud Storage does: fake-gcs-server with one bucket in memory,
// on port 443 of the loopback, which /etc/hosts of a namespace gives Google's names.
//
// TensorFlow sends "Transfer-Encoding: identity" with a request without a body. Google accepts this, but a server of
// Go 1.15 or later answers 501. So the listener gives the header another name of the same length.
package main

import (
	"bytes"
	"crypto/tls"
	"flag"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

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

func main() {
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
	plain, err := tls.Listen("tcp", "127.0.0.1:443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		log.Fatal(err)
	}
	handler := server.HTTPHandler()
	log.Fatal(http.Serve(listener{plain}, http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		request.Header.Set("X-Forwarded-Proto", "https") // the address for an upload's content begins with it
		handler.ServeHTTP(answer, request)
	})))
}
