// Serve is the gateway for tests as a program of its own. It registers itself as ALIAS below CONFIG ($XDG_CONFIG_HOME), prints
// the endpoint of the engine that its sandboxes are on, and serves until its stdin ends. For each line on its stdin it prints
// the calls that it has had since the last one, as JSON. Without an engine its sandboxes are in memory. With -real it takes its
// time, so that a sandbox is READY after 0.45 s or more and gone after 0.1 s, as was seen of a real gateway.
//
//	serve [-engine unix:///PATH] [-real] CONFIG ALIAS
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

func main() {
	endpoint := flag.String("engine", "", "where containers are made")
	slow := flag.Bool("real", false, "as slow as a real one")
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	p := &program{}
	var g *gateway.Gateway
	if *endpoint == "" {
		g = gateway.Memory(p, gateway.Options{})
	} else {
		g = gateway.ContainersOn(p, *endpoint, gateway.Options{})
	}
	if *slow {
		g.Fault(gateway.Landing, gateway.Delay(300*time.Millisecond).Times(0))
		g.Fault(gateway.Removing, gateway.Delay(70*time.Millisecond).Times(0))
	}
	g.Register(flag.Arg(0), flag.Arg(1))
	fmt.Println(g.Engine())
	had := map[string]int{}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		now := g.Calls()
		since := map[string]int{}
		for name, n := range now {
			if n -= had[name]; n > 0 {
				since[name] = n
			}
		}
		had = now
		if err := json.NewEncoder(os.Stdout).Encode(since); err != nil {
			break
		}
	}
	p.end()
	if p.failed {
		os.Exit(1)
	}
}

// program is a test as far as the gateway needs one.
type program struct {
	cleanup []func()
	failed  bool
}

func (*program) Helper()             {}
func (p *program) Cleanup(do func()) { p.cleanup = append(p.cleanup, do) }

func (p *program) Errorf(format string, args ...any) {
	p.failed = true
	fmt.Fprintf(os.Stderr, "gateway: "+format+"\n", args...)
}

func (p *program) Fatal(args ...any)                 { p.Fatalf("%s", fmt.Sprint(args...)) }
func (p *program) Skipf(format string, args ...any)  { p.Fatalf(format, args...) }
func (p *program) Fatalf(format string, args ...any) { p.Errorf(format, args...); p.end(); os.Exit(1) }

func (p *program) end() {
	list := p.cleanup
	p.cleanup = nil // one that fails ends the program, too
	for _, do := range slices.Backward(list) {
		do()
	}
}
