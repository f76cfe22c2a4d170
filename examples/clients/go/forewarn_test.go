// Runs forewarn as a separate process on a virtual clock, for tests. Copy this file into your project:
// it does not depend on the application.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Forewarn is a running service, and a client of its control API.
type Forewarn struct {
	command   *exec.Cmd
	control   string
	directory string
}

// StartForewarn returns when the service is ready. It has the sample fleet of forewarn dev.
func StartForewarn() (*Forewarn, error) {
	directory, err := os.MkdirTemp("", "forewarn")
	if err != nil {
		return nil, err
	}
	ports := []string{"--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"}
	command := exec.Command("forewarn", append([]string{"dev", "--clock", "virtual"}, ports...)...)
	command.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+directory) // separate from a service that already runs
	command.Stderr = os.Stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "ready ") {
			var ready struct{ Control string }
			err := json.Unmarshal([]byte(strings.TrimPrefix(line, "ready ")), &ready)
			go io.Copy(io.Discard, stdout)
			return &Forewarn{command, ready.Control, directory}, err
		}
	}
	return nil, fmt.Errorf("forewarn ended before it was ready: %v", command.Wait())
}

// Stop ends the service.
func (f *Forewarn) Stop() {
	f.command.Process.Signal(syscall.SIGTERM)
	f.command.Wait()
	os.RemoveAll(f.directory)
}

// URL returns the address of the endpoint for a machine.
func (f *Forewarn) URL(machine string) (string, error) {
	var details struct {
		URL string `json:"metadata_url"`
	}
	err := f.Do("GET", "/v1/machines/"+machine, nil, &details)
	return details.URL, err
}

// Play advances the clock, and waits at every change until the clients that poll have seen it.
func (f *Forewarn) Play(length time.Duration) error {
	var clock struct{ Now time.Time }
	if err := f.Do("GET", "/v1/clock", nil, &clock); err != nil {
		return err
	}
	for to := clock.Now.Add(length); clock.Now.Before(to); {
		if err := f.Do("POST", "/v1/clock/play", map[string]any{"to": to}, &clock); err != nil {
			return err
		}
	}
	return nil
}

// Do sends a request to the control API. The error for a refused request says what would have been
// right.
func (f *Forewarn) Do(method, path string, body, into any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, f.control+path, sent)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s", method, path, answer)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}
