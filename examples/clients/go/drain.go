// An application that prepares for maintenance: it ignores a Freeze; for every other event of its
// machine it stops its work and approves the event.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Watcher follows the events of one machine.
type Watcher struct {
	Client  *Client
	Prepare func(Event)  // stops the work; the event is approved when it returns
	Log     func(string) // is called with a line for every change of an event

	machine  string
	seen     map[string]Event
	approved map[string]bool
}

// NewWatcher returns a watcher that has not polled yet.
func NewWatcher(client *Client, prepare func(Event), log func(string)) *Watcher {
	seen, approved := map[string]Event{}, map[string]bool{}
	return &Watcher{Client: client, Prepare: prepare, Log: log, seen: seen, approved: approved}
}

// Poll reads the document once, prepares and approves. After an error it can be called again.
func (w *Watcher) Poll(ctx context.Context) error {
	if w.machine == "" {
		name, err := w.Client.Name(ctx)
		if err != nil {
			return err
		}
		w.machine = name
	}
	document, err := w.Client.Events(ctx)
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, event := range document {
		if !contains(event.Resources, w.machine) {
			continue // an event of another machine
		}
		listed[event.EventID] = true
		if w.seen[event.EventID].EventStatus != event.EventStatus {
			w.log(event.EventType, event.EventStatus)
			w.seen[event.EventID] = event
		}
		if err := w.approve(ctx, event); err != nil {
			return err
		}
	}
	for id, event := range w.seen {
		if !listed[id] { // finished or withdrawn: they look the same
			w.log(event.EventType, "gone")
			delete(w.seen, id)
			delete(w.approved, id)
		}
	}
	return nil
}

func (w *Watcher) approve(ctx context.Context, event Event) error {
	if event.EventStatus != "Scheduled" || event.EventType == "Freeze" || w.approved[event.EventID] {
		return nil
	}
	w.Prepare(event)
	if err := w.Client.Approve(ctx, event.EventID); err != nil {
		return err
	}
	w.approved[event.EventID] = true
	w.log(event.EventType, "approved")
	return nil
}

func (w *Watcher) log(eventType, change string) {
	w.Log(fmt.Sprintf("%s: %s %s", w.machine, eventType, change))
}

// Watch polls at this interval until the context ends. After an error it tries again.
func (w *Watcher) Watch(ctx context.Context, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		if err := w.Poll(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "retrying:", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

func contains(names []string, name string) bool {
	for _, candidate := range names {
		if candidate == name {
			return true
		}
	}
	return false
}

func main() {
	every := flag.Duration("every", time.Second, "time between two polls")
	once := flag.Bool("once", false, "poll once and exit")
	flag.Parse()
	base := os.Getenv("FOREWARN_METADATA")
	if base == "" {
		base = azure
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	prepare := func(Event) {} // stop the work of your application here
	watcher := NewWatcher(NewClient(base), prepare, func(line string) { fmt.Println(line) })
	if !*once {
		watcher.Watch(ctx, *every)
	} else if err := watcher.Poll(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
