// The peer in Go: what one writes with net/http and nothing else.
//
// The same work as the others: the Metadata header, the api-version, the document of whoever
// asks, chosen by source address, and a request id of its own for every answer.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

type document struct {
	body   string
	etag   []string
	length []string
}

var (
	jsonType = []string{"application/json; charset=utf-8"}
	server   = []string{"go"}
)

// peer VERSIONS DOCUMENTS ADDRESS: the files hold one query string, and one address with its tag
// and its document, in each line.
func main() {
	known := map[string]bool{}
	for _, line := range lines(os.Args[1]) {
		known[line] = true
	}
	documents := map[string]document{}
	for _, line := range lines(os.Args[2]) {
		part := strings.SplitN(line, "\t", 3)
		length := []string{strconv.Itoa(len(part[2]))}
		documents[part[0]] = document{part[2], []string{part[1]}, length}
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		found, is := documents[host]
		switch {
		case !is || r.URL.Path != "/metadata/scheduledevents":
			w.WriteHeader(http.StatusNotFound)
		case !strings.EqualFold(r.Header.Get("Metadata"), "true") || !known[r.URL.RawQuery]:
			w.WriteHeader(http.StatusBadRequest)
		default:
			head := w.Header()
			head["Content-Type"] = jsonType
			head["Content-Length"] = found.length
			head["Etag"] = found.etag
			head["Server"] = server
			head["X-Ms-Request-Id"] = []string{requestID()}
			io.WriteString(w, found.body)
		}
	}
	service := http.Server{
		Addr:              os.Args[3],
		Handler:           http.HandlerFunc(answer),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       120 * time.Second,
	}
	log.Fatal(service.ListenAndServe())
}

func requestID() string {
	var id [16]byte
	rand.Read(id[:])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:], id[:4])
	for at, from := 8, 4; at < 24; at, from = at+5, from+2 {
		text[at] = '-'
		hex.Encode(text[at+1:], id[from:from+2])
	}
	text[23] = '-'
	hex.Encode(text[24:], id[10:])
	return string(text[:])
}

func lines(path string) []string {
	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	var found []string
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		found = append(found, scanner.Text())
	}
	return found
}
