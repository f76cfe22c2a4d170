// An application that lets go of its work before maintenance: sits a Freeze out, prepares for
// everything else that is about its machine, approves it, and goes on asking.
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
	Prepare func(Event)  // lets go of the work; the event is approved when it returns
	Say     func(string) // is told what becomes of events, one line each

	machine  string
	statuses map[string]Event
	approved map[string]bool
}

// NewWatcher has seen nothing yet.
func NewWatcher(client *Client, prepare func(Event), say func(string)) *Watcher {
	seen, approved := map[string]Event{}, map[string]bool{}
	return &Watcher{Client: client, Prepare: prepare, Say: say, statuses: seen, approved: approved}
}

// Look asks once and does what is to be done. After an error it can simply be called again.
func (w *Watcher) Look(ctx context.Context) error {
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
	here := map[string]bool{}
	for _, event := range document {
		if !contains(event.Resources, w.machine) {
			continue // a neighbour's
		}
		here[event.EventID] = true
		if w.statuses[event.EventID].EventStatus != event.EventStatus {
			w.say(event.EventType, event.EventStatus)
			w.statuses[event.EventID] = event
		}
		if err := w.approve(ctx, event); err != nil {
			return err
		}
	}
	for id, event := range w.statuses {
		if !here[id] { // finished or withdrawn: they look the same
			w.say(event.EventType, "gone")
			delete(w.statuses, id)
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
	w.say(event.EventType, "approved")
	return nil
}

func (w *Watcher) say(what, became string) {
	w.Say(fmt.Sprintf("%s: %s %s", w.machine, what, became))
}

// Watch looks every so often until the context ends. What goes wrong is told and tried again.
func (w *Watcher) Watch(ctx context.Context, every time.Duration) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		if err := w.Look(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "asking again:", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
	}
}

func contains(names []string, name string) bool {
	for _, one := range names {
		if one == name {
			return true
		}
	}
	return false
}

func main() {
	every := flag.Duration("every", time.Second, "how often to ask")
	once := flag.Bool("once", false, "ask once and end")
	flag.Parse()
	base := os.Getenv("FOREWARN_METADATA")
	if base == "" {
		base = azure
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	prepare := func(Event) {} // here your application lets go of its work
	watcher := NewWatcher(NewClient(base), prepare, func(line string) { fmt.Println(line) })
	if !*once {
		watcher.Watch(ctx, *every)
	} else if err := watcher.Look(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
