package guestclient

import (
	"context"
	"net"
	"path/filepath"
	"testing"
)

// Where one was taken the next one is waited for, but not somebody who sits there instead and says nothing.
func TestSomebodySilentIsAskedOnce(t *testing.T) {
	t.Parallel()
	s := Standby{Socket: filepath.Join(t.TempDir(), "standby"), Taken: &TakenSockets{}}
	s.Taken.sockets.Store(s.Socket, true)
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			asked++
		}
	}()
	if _, taken := s.connect(context.Background(), "/laufwerk/ops/op", nil); taken {
		t.Error("it was taken")
	}
	_ = l.Close()
	<-over
	if asked != 1 {
		t.Errorf("it was asked %d times", asked)
	}
}
