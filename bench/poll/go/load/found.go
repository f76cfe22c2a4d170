package main

import (
	"bytes"
	"slices"
	"strconv"
)

// What has been measured. Latency counts from when a poll was due, so that a stall is felt by
// every poll that it held up, also by those which could not be sent.
type measured struct {
	on           bool
	began        int64
	fromDue      []int64
	fromSent     []int64
	late         []int64 // how late the generator itself was
	errors       int
	firstError   string
	skipped      int // polls that were never sent because two were owed already
	slowCut      int
	slowAnswered int
}

type spread struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (m *measured) begin(seconds float64) {
	room := int(seconds * 150_000)
	*m = measured{
		on:       true,
		began:    now(),
		fromDue:  make([]int64, 0, room),
		fromSent: make([]int64, 0, room),
		late:     make([]int64, 0, room),
		errors:   m.errors, firstError: m.firstError,
	}
}

func (m *measured) count(c *connection, at int64, status string) {
	if status != "200" {
		m.wrong("answered " + status)
		return
	}
	if !m.on || c.due < m.began {
		return
	}
	m.fromDue = append(m.fromDue, at-c.due)
	m.fromSent = append(m.fromSent, at-c.sent)
	m.late = append(m.late, c.sent-c.due)
}

func (m *measured) wrong(why string) {
	if m.errors == 0 {
		m.firstError = why
	}
	m.errors++
}

func (l *loop) found(seconds float64) map[string]any {
	open := 0
	for _, c := range l.slows.connections {
		if c.fd >= 0 {
			open++
		}
	}
	return map[string]any{
		"phase":         "done",
		"requests":      len(l.fromDue),
		"seconds":       seconds,
		"errors":        l.errors,
		"first_error":   l.firstError,
		"skipped":       l.skipped,
		"latency":       percentiles(l.fromDue),
		"sent_latency":  percentiles(l.fromSent),
		"late":          percentiles(l.late),
		"slow_open":     open,
		"slow_cut":      l.slowCut,
		"slow_answered": l.slowAnswered,
	}
}

// percentiles are in milliseconds.
func percentiles(of []int64) spread {
	if len(of) == 0 {
		return spread{}
	}
	slices.Sort(of)
	at := func(share float64) float64 {
		return float64(of[min(len(of)-1, int(share*float64(len(of))))]) / 1e6
	}
	return spread{at(0.5), at(0.9), at(0.99), at(1)}
}

var headEnd, lengthName = []byte("\r\n\r\n"), []byte("content-length:")

// whole answers how long an answer is, head and body, and its status; 0 while that is not known.
func whole(text []byte) (int, string) {
	end := bytes.Index(text, headEnd)
	if end < 12 {
		return 0, ""
	}
	for rest := text[:end]; ; {
		at := bytes.IndexByte(rest, '\n')
		if at < 0 {
			return end + len(headEnd), string(text[9:12]) // no body
		}
		rest = rest[at+1:]
		if len(rest) > len(lengthName) && bytes.EqualFold(rest[:len(lengthName)], lengthName) {
			line, _, _ := bytes.Cut(rest[len(lengthName):], []byte("\r"))
			length, err := strconv.Atoi(string(bytes.TrimSpace(line)))
			if err != nil {
				return end + len(headEnd), "without a length"
			}
			return end + len(headEnd) + length, string(text[9:12])
		}
	}
}
