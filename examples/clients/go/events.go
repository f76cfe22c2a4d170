// Asking for Scheduled Events and approving them. What to do about one is in drain.go.
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
	azure    = "http://169.254.169.254"
	events   = "/metadata/scheduledevents?api-version=2020-07-01"
	name     = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	patience = 5 * time.Second // for one answer
	largest  = 1 << 20         // bytes of an answer that are read
)

// Event is one entry of the document.
type Event struct {
	EventID           string
	EventType         string // Freeze, Reboot, Redeploy, Preempt or Terminate
	EventStatus       string // Scheduled, then Started; an event that is over is gone
	Resources         []string
	NotBefore         string // RFC 1123, empty once it has started
	Description       string
	EventSource       string // Platform or User
	DurationInSeconds int    // -1: not known
}

// Client asks as the machine that it runs in.
type Client struct {
	base string
	http *http.Client
}

// NewClient asks at base, which on a virtual machine is http://169.254.169.254.
func NewClient(base string) *Client {
	// No proxy: the endpoint is for the machine itself and refuses what was forwarded.
	transport := &http.Transport{Proxy: nil, IdleConnTimeout: 90 * time.Second}
	return &Client{base, &http.Client{Transport: transport, Timeout: patience}}
}

// Name is what the events call this machine.
func (c *Client) Name(ctx context.Context) (string, error) {
	answer, err := c.ask(ctx, http.MethodGet, name, nil)
	return string(answer), err
}

// Events is what stands in the document now. An answer that is no document is an error,
// never "no events": the service has bad days.
func (c *Client) Events(ctx context.Context) ([]Event, error) {
	answer, err := c.ask(ctx, http.MethodGet, events, nil)
	if err != nil {
		return nil, err
	}
	var document struct{ Events *[]Event }
	if err := json.Unmarshal(answer, &document); err != nil {
		return nil, fmt.Errorf("no document: %w", err)
	}
	if document.Events == nil {
		return nil, fmt.Errorf("no document: %q", answer)
	}
	return *document.Events, nil
}

// Approve says that an event may start now. It cannot be taken back.
func (c *Client) Approve(ctx context.Context, id string) error {
	type start struct{ EventId string }
	body, err := json.Marshal(struct{ StartRequests []start }{[]start{{id}}})
	if err != nil {
		return err
	}
	_, err = c.ask(ctx, http.MethodPost, events, body)
	return err
}

func (c *Client) ask(ctx context.Context, method, target string, body []byte) ([]byte, error) {
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
	answer, err := io.ReadAll(io.LimitReader(response.Body, largest))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", method, target, response.Status)
	}
	return answer, nil
}
