// A load generator for what wrk cannot do: pollers with a source address each, that keep a pace,
// connections that are slow on purpose, one-shot polls whose connection the client closes, and
// attacks (attack.go).
//
// One thread, one epoll, no goroutines: at 10,000 polls a second on one core it must not be what
// is measured. It speaks to whoever started it in lines of JSON, {"phase": "begin"} when the
// measurement begins and {"phase": "done", …} with what was found, and holds its connections
// until its standard input ends.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
)

func main() {
	var (
		mode    = flag.String("mode", "paced", "paced, flood (keep-alive, at full speed), oneshot or attack")
		target  = flag.String("target", "", "HOST:PORT")
		sources = flag.String("sources", "", "a file of source addresses, one in a line")
		pollers = flag.Int("pollers", 1, "connections that poll")
		slow    = flag.Int("slow", 0, "connections that send a byte a second (paced only)")
		kind    = flag.String("attack", "", "which attack, or @FILE with a request (attack only)")
		warm    = flag.Float64("warm", 1, "seconds before the measurement")
		drain   = flag.Float64("drain", 0, "seconds to wait after it for answers (paced only)")
		seconds = flag.Float64("seconds", 5, "seconds of it")
	)
	flag.Parse()
	runtime.LockOSThread()
	debug.SetGCPercent(800)

	if *mode == "attack" {
		runAttack(*kind, *target, addresses(*sources), *warm, *seconds)
		return
	}
	loop := newLoop(*target, addresses(*sources))
	switch *mode {
	case "paced":
		loop.pace(*pollers, *slow)
	case "flood":
		loop.flood(*pollers)
	case "oneshot":
		loop.oneshot(*pollers)
	default:
		fail("no such mode: %s", *mode)
	}
	loop.run(*warm)
	loop.begin(*seconds)
	say(map[string]any{"phase": "begin"})
	loop.run(*seconds)
	if *drain > 0 {
		loop.polls.connections = nil // no poll is due any more
		loop.run(*drain)
	}
	say(loop.found(*seconds))
	io.Copy(io.Discard, os.Stdin)
}

func addresses(path string) [][4]byte {
	file, err := os.Open(path)
	if err != nil {
		fail("%v", err)
	}
	defer file.Close()
	var found [][4]byte
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		found = append(found, ipv4(scanner.Text()))
	}
	return found
}

func split(target string) ([4]byte, int) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		fail("%v", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		fail("%v", err)
	}
	return ipv4(host), number
}

func ipv4(text string) [4]byte {
	ip := net.ParseIP(text).To4()
	if ip == nil {
		fail("%q is no IPv4 address", text)
	}
	return [4]byte(ip)
}

func say(what any) {
	if err := json.NewEncoder(os.Stdout).Encode(what); err != nil {
		fail("%v", err)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "load: "+format+"\n", values...)
	os.Exit(1)
}

var started = time.Now()

// now is the time since the program started, in nanoseconds.
func now() int64 { return int64(time.Since(started)) }
