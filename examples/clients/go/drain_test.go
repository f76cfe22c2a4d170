// Tests of the application with real maintenance; fifteen minutes of notice pass at once.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"
)

var forewarn *Forewarn

func TestMain(m *testing.M) {
	started, err := StartForewarn()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	forewarn = started
	code := m.Run()
	forewarn.Stop()
	os.Exit(code)
}

func TestARestartIsPreparedForAndApproved(t *testing.T) {
	prepared := 0
	end := watching(t, "web_0", func(Event) { prepared++ })
	do(t, "POST", "/v1/machines/web_0/restart", nil, nil)
	play(t, 30*time.Minute)
	same(t, end(), "web_0: Reboot Scheduled", "web_0: Reboot approved", "web_0: Reboot Started", "web_0: Reboot gone")
	if prepared != 1 {
		t.Errorf("prepared %d times", prepared)
	}
	course := verdict(t, "web_0")
	if course.ApprovedBy != "web_0" || course.InTime == nil || !*course.InTime {
		t.Errorf("%+v", course)
	}
}

func TestAFreezeIsIgnored(t *testing.T) {
	end := watching(t, "sql-0", func(Event) { t.Error("there is nothing to prepare") })
	do(t, "POST", "/v1/events", map[string]any{"type": "Freeze", "machines": []string{"sql-0"}, "duration": 5}, nil)
	play(t, 30*time.Minute)
	same(t, end(), "sql-0: Freeze Scheduled", "sql-0: Freeze Started", "sql-0: Freeze gone")
	if course := verdict(t, "sql-0"); course.ApprovedBy != "" {
		t.Errorf("approved by %s", course.ApprovedBy)
	}
}

func TestErrorsOfTheServiceAreSurvived(t *testing.T) {
	end := watching(t, "Worker_IN_0", func(Event) {})
	// The approval takes effect, but its answer is lost.
	fault(t, map[string]any{"kind": "reset", "machines": []string{"Worker_IN_0"}, "method": "POST", "times": 1})
	do(t, "POST", "/v1/machines/Worker_IN_0/redeploy", nil, nil)
	play(t, time.Second)
	// The event has started, and none of these answers means that it is over.
	for _, kind := range []string{"reset", "truncated", "empty", "no-events"} {
		fault(t, map[string]any{"kind": kind, "machines": []string{"Worker_IN_0"}, "method": "GET", "times": 1})
	}
	// The last fault skips two polls, so that the test notices a client that takes them for the end.
	fault(t, map[string]any{"kind": "gone", "machines": []string{"Worker_IN_0"}, "skip": 2, "times": 1})
	for consumed := 0; consumed < 6; {
		var faults []struct{ Consumed int }
		do(t, "GET", "/v1/faults", nil, &faults)
		consumed = 0
		for _, fault := range faults {
			consumed += fault.Consumed
		}
	}
	play(t, 30*time.Minute)
	same(t, end(), "Worker_IN_0: Redeploy Scheduled", "Worker_IN_0: Redeploy Started", "Worker_IN_0: Redeploy gone")
	verdict(t, "Worker_IN_0")
}

// watching runs the application as a machine. The function that it returns ends the application and
// returns its lines.
func watching(t *testing.T, machine string, prepare func(Event)) func() []string {
	t.Helper()
	url, err := forewarn.URL(machine)
	check(t, err)
	var lines []string
	watcher := NewWatcher(NewClient(url), prepare, func(line string) { lines = append(lines, line) })
	ctx, cancel := context.WithCancel(context.Background())
	check(t, watcher.Poll(ctx)) // a machine gets events from its first poll on
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watcher.Watch(ctx, 20*time.Millisecond)
	}()
	end := func() []string {
		cancel()
		<-ended
		return lines
	}
	t.Cleanup(func() { end() })
	return end
}

// Course is what a machine did about an event, as reported by the verdict.
type Course struct {
	InTime     *bool  `json:"in_time"`
	ApprovedBy string `json:"approved_by"`
}

// verdict fails the test if the application did anything wrong.
func verdict(t *testing.T, machine string) Course {
	t.Helper()
	var report struct {
		Courses    []Course
		Complaints []struct{ Severity, Rule, Message string }
	}
	do(t, "GET", "/v1/verdict?machine="+machine, nil, &report)
	for _, complaint := range report.Complaints {
		if complaint.Severity == "wrong" {
			t.Errorf("%s: %s", complaint.Rule, complaint.Message)
		}
	}
	if len(report.Courses) != 1 {
		t.Fatalf("%d events, not one", len(report.Courses))
	}
	return report.Courses[0]
}

func do(t *testing.T, method, path string, body, into any) {
	t.Helper()
	check(t, forewarn.Do(method, path, body, into))
}

func fault(t *testing.T, options map[string]any) {
	t.Helper()
	do(t, "POST", "/v1/faults", options, nil)
}

func play(t *testing.T, length time.Duration) {
	t.Helper()
	check(t, forewarn.Play(length))
}

func same(t *testing.T, lines []string, want ...string) {
	t.Helper()
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("got %q\nwant %q", lines, want)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
