package main

import (
	"bytes"
	"syscall"
	"time"
	"unsafe"
)

const (
	request = "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n" +
		"Host: 169.254.169.254\r\nMetadata: true\r\n\r\n"
	unfinished = "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n" +
		"Host: 169.254.169.254\r\nMetadata: true\r\nX-Slow: "

	second  = int64(time.Second)
	opening = 4_000 // connections a second, so that no backlog overflows

	bindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT: the port is chosen when it is clear whereto
	epollET           = 1 << 31
	epollPwait2       = 441
)

var farewell = []byte("connection: close\r\n")

// A connection, and what is under way on it. A slow one never asks anything.
type connection struct {
	fd      int
	source  [4]byte
	slow    bool
	unsent  bool   // the socket did not take the request yet
	busy    bool   // a request is under way
	due     int64  // when it should have been sent
	sent    int64  // when it was
	owed    int64  // a request that was due while another was under way; 0: none
	partial []byte // of an answer
}

// A schedule gives every connection its turn once a second, evenly spread.
type schedule struct {
	connections []*connection
	began       int64
	turn        int
}

func (s *schedule) due() int64 {
	if len(s.connections) == 0 {
		return 1 << 62
	}
	return s.began + int64(s.turn)*second/int64(len(s.connections))
}

func (s *schedule) next() *connection {
	c := s.connections[s.turn%len(s.connections)]
	s.turn++
	return c
}

type loop struct {
	epoll     int
	to        syscall.SockaddrInet4
	sources   [][4]byte
	used      int // how many sources have been given away
	byFD      []*connection
	polls     schedule
	slows     schedule
	unlimited bool // ask again as soon as there is an answer
	hangUp    bool // and on a new connection
	buffer    []byte
	measured
}

func newLoop(target string, sources [][4]byte) *loop {
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		fail("%v", err)
	}
	host, port := split(target)
	return &loop{
		epoll:   epoll,
		to:      syscall.SockaddrInet4{Addr: host, Port: port},
		sources: sources,
		byFD:    make([]*connection, 1<<16),
		buffer:  make([]byte, 1<<18),
	}
}

// pace opens the connections, lets every poller ask once, and only then starts the schedules.
func (l *loop) pace(pollers, slow int) {
	l.polls.connections = l.opened(pollers, false)
	l.slows.connections = l.opened(slow, true)
	l.polls.began, l.slows.began = now(), now()
}

func (l *loop) flood(pollers int) {
	l.opened(pollers, false)
	l.unlimited = true
	for _, c := range l.byFD {
		if c != nil && !c.busy {
			l.ask(c, now())
		}
	}
}

func (l *loop) oneshot(pollers int) {
	l.unlimited, l.hangUp = true, true
	for range pollers {
		c := &connection{fd: -1}
		l.open(c)
		l.ask(c, now())
	}
}

func (l *loop) opened(many int, slow bool) []*connection {
	all := make([]*connection, many)
	began := now()
	for i := range all {
		for now() < began+int64(i)*second/opening {
			l.wait(began + int64(i)*second/opening)
		}
		c := &connection{fd: -1, slow: slow, source: l.source()}
		all[i] = c
		l.open(c)
		if !slow {
			l.ask(c, now())
		}
	}
	for limit := now() + 30*second; now() < limit; {
		waiting := 0
		for _, c := range all {
			if c.busy {
				waiting++
			}
		}
		if waiting == 0 {
			return all
		}
		l.wait(now() + second/100)
	}
	fail("not every connection was answered within 30 s")
	return nil
}

func (l *loop) source() [4]byte {
	l.used++
	return l.sources[(l.used-1)%len(l.sources)]
}

// run serves the schedules for so many seconds.
func (l *loop) run(seconds float64) {
	end := now() + int64(seconds*float64(second))
	for {
		at := now()
		if at >= end {
			return
		}
		// An answer that is there is read before anything else is sent: its time counts.
		for sent := 0; sent < 16 && l.polls.due() <= at; sent++ {
			due := l.polls.due()
			if c := l.polls.next(); !c.busy {
				l.ask(c, due)
			} else if c.owed == 0 {
				c.owed = due
			} else {
				l.skipped++
			}
		}
		for sent := 0; sent < 16 && l.slows.due() <= at; sent++ {
			l.dribble(l.slows.next())
		}
		l.wait(min(l.polls.due(), l.slows.due(), end))
	}
}

// wait handles what the sockets have to say, until the given time at the latest.
func (l *loop) wait(until int64) {
	var events [256]syscall.EpollEvent
	left := syscall.NsecToTimespec(max(0, until-now()))
	n, _, _ := syscall.Syscall6(epollPwait2, uintptr(l.epoll), uintptr(unsafe.Pointer(&events)),
		uintptr(len(events)), uintptr(unsafe.Pointer(&left)), 0, 0)
	for i := range max(0, int(n)) {
		c := l.byFD[events[i].Fd]
		if c == nil {
			continue
		}
		if c.unsent && events[i].Events&syscall.EPOLLOUT != 0 {
			l.send(c)
		}
		if events[i].Events&^uint32(syscall.EPOLLOUT) != 0 {
			l.hear(c)
		}
	}
}

// open connects without waiting for it: a request is sent when the socket takes one.
func (l *loop) open(c *connection) {
	if l.hangUp {
		c.source = l.source()
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		fail("%v", err)
	}
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, bindAddressNoPort, 1)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: c.source}); err != nil {
		fail("bind %v: %v", c.source, err)
	}
	if err := syscall.Connect(fd, &l.to); err != nil && err != syscall.EINPROGRESS {
		l.wrong("connect: " + err.Error())
	}
	c.fd, c.busy, c.owed, c.partial = fd, false, 0, nil
	l.byFD[fd] = c
	event := syscall.EpollEvent{Fd: int32(fd)}
	event.Events = syscall.EPOLLIN | syscall.EPOLLOUT | syscall.EPOLLRDHUP | epollET
	if err := syscall.EpollCtl(l.epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
		fail("%v", err)
	}
	if c.slow {
		l.send(c)
	}
}

func (l *loop) close(c *connection) {
	l.byFD[c.fd] = nil
	syscall.Close(c.fd)
	c.fd, c.busy, c.unsent = -1, false, false
}

func (l *loop) ask(c *connection, due int64) {
	if c.fd < 0 {
		l.open(c)
	}
	c.busy, c.due, c.sent = true, due, now()
	l.send(c)
}

func (l *loop) send(c *connection) {
	text := request
	if c.slow {
		text = unfinished
	}
	_, err := syscall.Write(c.fd, unsafe.Slice(unsafe.StringData(text), len(text)))
	c.unsent = err == syscall.EAGAIN
	if err != nil && !c.unsent {
		l.lost(c, "write: "+err.Error())
	}
}

// dribble sends one byte more of a head that never ends, and comes back if it was cut off.
func (l *loop) dribble(c *connection) {
	if c.fd < 0 {
		l.open(c)
	} else if _, err := syscall.Write(c.fd, []byte{'a'}); err != nil && err != syscall.EAGAIN {
		l.lost(c, "")
	}
}

// hear reads what has come; an answer that is whole is counted.
func (l *loop) hear(c *connection) {
	for {
		n, err := syscall.Read(c.fd, l.buffer)
		if err == syscall.EAGAIN {
			return
		}
		if err != nil {
			l.lost(c, "read: "+err.Error())
			return
		}
		if n == 0 {
			l.lost(c, "the server hung up")
			return
		}
		if c.slow {
			l.slowAnswered++
			continue
		}
		text := l.buffer[:n]
		if len(c.partial) > 0 {
			c.partial = append(c.partial, text...)
			text = c.partial
		}
		length, status := whole(text)
		if length == 0 || len(text) < length {
			if len(c.partial) == 0 {
				c.partial = append(c.partial, text...)
			}
			continue
		}
		last := bytes.Contains(text, farewell)
		c.partial = c.partial[:0]
		l.answered(c, status, last)
		return
	}
}

// answered counts it, and goes on as the mode has it; after a last answer on a new connection.
func (l *loop) answered(c *connection, status string, last bool) {
	at := now()
	owed := c.owed
	c.busy, c.owed = false, 0
	l.count(c, at, status)
	if last {
		l.close(c)
	}
	if l.hangUp && !last {
		l.close(c)
	}
	if l.unlimited {
		l.ask(c, now())
	} else if owed != 0 {
		l.ask(c, owed)
	}
}

// lost is what becomes of a connection that the other side ended; only slow ones may be.
func (l *loop) lost(c *connection, why string) {
	if c.slow {
		l.slowCut++
	} else {
		l.wrong(why)
	}
	l.close(c)
	if l.unlimited {
		l.ask(c, now())
	}
}
