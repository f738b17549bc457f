package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/testkit/gateway/relay"
)

// out passes what wants out on to the gateway, and says who it is.
func out(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			inside, ok := conn.(*net.TCPConn)
			if !ok {
				return
			}
			head, err := json.Marshal(relay.Caller{Programs: programs(conn.RemoteAddr().(*net.TCPAddr).Port)}) //nolint:errcheck // it is one of TCP
			if err != nil {
				return
			}
			outside, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(relay.Dir, relay.Egress)})
			if err != nil {
				return
			}
			defer outside.Close()
			if _, err := outside.Write(append(head, '\n')); err != nil {
				return
			}
			splice(inside, outside)
		}()
	}
}

// programs are the one that has a connection from a port of this container, and those of its ancestors.
func programs(port int) []string {
	link := socketLink(port)
	if link == "" {
		return nil
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err != nil || to != link {
			continue
		}
		var all []string
		for pid := strings.Split(fd, "/")[2]; pid != "1" && pid != "0" && pid != ""; pid = parent(pid) {
			if program, err := os.Readlink("/proc/" + pid + "/exe"); err == nil {
				all = append(all, program)
			}
		}
		return all
	}
	return nil
}

// socketLink is what the descriptors of that connection link to.
func socketLink(port int) string {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			if len(fields) > 9 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) && fields[9] != "0" {
				return "socket:[" + fields[9] + "]"
			}
		}
	}
	return ""
}

func parent(pid string) string {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 2 {
		return ""
	}
	if _, err := strconv.Atoi(fields[1]); err != nil {
		return ""
	}
	return fields[1]
}
