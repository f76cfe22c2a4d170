// A client of Scheduled Events: it reads the document and approves events. The application that uses
// it is in drain.go.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	azure     = "http://169.254.169.254"
	events    = "/metadata/scheduledevents?api-version=2020-07-01"
	name      = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	timeout   = 5 * time.Second // for one answer
	maxAnswer = 1 << 20         // bytes of an answer that are read
)

// Event is one entry of the document.
type Event struct {
	EventID           string
	EventType         string // Freeze, Reboot, Redeploy, Preempt or Terminate
	EventStatus       string // Scheduled, then Started; an event that is over is not listed
	Resources         []string
	NotBefore         string // RFC 1123, empty once it has started
	Description       string
	EventSource       string // Platform or User
	DurationInSeconds int    // -1: unknown
}

// Client sends requests as the machine that it runs in.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client of the endpoint at base, which on a virtual machine is
// http://169.254.169.254.
func NewClient(base string) *Client {
	// No proxy: the endpoint is only for the machine itself and refuses forwarded requests.
	transport := &http.Transport{Proxy: nil, IdleConnTimeout: 90 * time.Second}
	return &Client{base, &http.Client{Transport: transport, Timeout: timeout}}
}

// Name returns the name of this machine in events.
func (c *Client) Name(ctx context.Context) (string, error) {
	answer, err := c.send(ctx, http.MethodGet, name, nil)
	return string(answer), err
}

// Events returns the events in the current document. An answer that is not a document is an error,
// never "no events".
func (c *Client) Events(ctx context.Context) ([]Event, error) {
	answer, err := c.send(ctx, http.MethodGet, events, nil)
	if err != nil {
		return nil, err
	}
	var document struct{ Events *[]Event }
	if err := json.Unmarshal(answer, &document); err != nil {
		return nil, fmt.Errorf("not a document: %w", err)
	}
	if document.Events == nil {
		return nil, fmt.Errorf("not a document: %q", answer)
	}
	return *document.Events, nil
}

// Approve allows an event to start now. An approval cannot be taken back.
func (c *Client) Approve(ctx context.Context, id string) error {
	type start struct{ EventId string }
	body, err := json.Marshal(struct{ StartRequests []start }{[]start{{id}}})
	if err != nil {
		return err
	}
	_, err = c.send(ctx, http.MethodPost, events, body)
	return err
}

func (c *Client) send(ctx context.Context, method, target string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Metadata", "true")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, target, response.Status)
	}
	return answer, nil
}
