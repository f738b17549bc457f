package engine

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// Fault is what happens to a call.
type Fault struct {
	name string
	run  func(x *exchange)
}

// Faults are those that a caller has to expect of every call, for tests that try each; those that hold something are not
// among them.
func Faults() map[string]Fault {
	return map[string]Fault{
		"request lost": LoseRequest(), "reply lost": LoseReply(), "status 500": Fail(http.StatusInternalServerError),
		"status 500 after the effect": FailAfter(http.StatusInternalServerError), "truncated reply": Truncate(),
		"engine gone before the effect": Vanish(), "engine gone after the effect": VanishAfter(),
	}
}

// LoseRequest cuts the connection; the engine never hears of the call.
func LoseRequest() Fault {
	return Fault{"request lost", func(x *exchange) {
		x.rule.meet()
		x.cut()
	}}
}

// LoseReply cuts the connection when the engine has done what was asked, to its last byte.
func LoseReply() Fault {
	return Fault{"reply lost", func(x *exchange) {
		x.whole().drop()
		x.rule.meet()
		x.cut()
	}}
}

// LateReply holds the reply until Release.
func LateReply() Fault {
	return Fault{"late reply", func(x *exchange) {
		came := x.whole()
		x.rule.meet()
		if !x.waitForRelease() {
			came.drop()
			x.cut()
			return
		}
		x.give(came)
	}}
}

// LateRequest holds the call until Release and passes it to the engine then, even if the client has gone meanwhile: the effect
// comes after the client has seen an error.
func LateRequest() Fault {
	return Fault{"late request", func(x *exchange) {
		body, err := io.ReadAll(x.r.Body)
		x.rule.meet()
		if err != nil {
			x.cut()
			return
		}
		select {
		case <-x.rule.released:
		case <-x.proxy.ctx.Done():
			x.cut()
			return
		}
		x.give(x.wholeOf(body))
	}}
}

// Hang answers nothing, and the engine never hears of the call. Release cuts the connection.
func Hang() Fault {
	return Fault{"hang", func(x *exchange) {
		_, _ = io.Copy(io.Discard, x.r.Body) // the server sees the client go only when it has read all
		x.rule.meet()
		x.waitForRelease()
		x.cut()
	}}
}

// Fail answers with a status and a message as the engine writes it; the engine never hears of the call.
func Fail(status int) Fault {
	return Fault{"failed", func(x *exchange) {
		x.rule.meet()
		x.fail(status)
	}}
}

// FailAfter is Fail when the engine has done what was asked.
func FailAfter(status int) Fault {
	return Fault{"failed after the effect", func(x *exchange) {
		x.whole().drop()
		x.rule.meet()
		x.fail(status)
	}}
}

// Truncate lets the engine do what was asked and sends half of the body, as if that were all of it. Where there is no body,
// the connection is cut in the middle of the reply's head.
func Truncate() Fault {
	return Fault{"truncated reply", func(x *exchange) {
		came := x.whole()
		x.rule.meet()
		switch {
		case !came.ok:
			x.cut()
		case len(came.body) == 0:
			came.drop()
			conn, _, end := x.hijack()
			if conn != nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 "+came.Status+"\r\nContent-Le")
			}
			end()
		default:
			x.write(came.Response, came.body[:len(came.body)/2])
		}
	}}
}

// Vanish is LoseRequest, and the engine is gone from then on (Leave), until Return.
func Vanish() Fault {
	return Fault{"engine gone before the effect", func(x *exchange) {
		x.proxy.Leave()
		x.rule.meet()
	}}
}

// VanishAfter is LoseReply, and the engine is gone from then on (Leave), until Return.
func VanishAfter() Fault {
	return Fault{"engine gone after the effect", func(x *exchange) {
		x.whole().drop()
		x.proxy.Leave()
		x.rule.meet()
	}}
}

// Before does something first, with the call held; the call then goes through as it is.
func Before(do func()) Fault {
	return Fault{"something before", func(x *exchange) {
		do()
		x.rule.meet()
		x.pass()
	}}
}

// After does something when the engine has done what was asked, before the client has the reply.
func After(do func()) Fault {
	return Fault{"something after", func(x *exchange) {
		came := x.whole()
		do()
		x.rule.meet()
		x.give(came)
	}}
}

// Ask changes what the engine is asked, before it is.
func Ask(change func(body []byte) []byte) Fault {
	return Fault{"another question", func(x *exchange) {
		body, err := io.ReadAll(x.r.Body)
		x.rule.meet()
		if err != nil {
			x.cut()
			return
		}
		x.give(x.wholeOf(change(body)))
	}}
}

// Say changes what the engine answers, when it has done what was asked.
func Say(change func(body []byte) []byte) Fault {
	return Fault{"another answer", func(x *exchange) {
		came := x.whole()
		if came.ok {
			came.body = change(came.body)
		}
		x.rule.meet()
		x.give(came)
	}}
}

// OnOtherHost lets the engine be one of another host: what it mounts of a directory of this one, as it was asked, is a directory
// of its own. It says as ever that all is as it was asked for.
func (p *Proxy) OnOtherHost(dir string) {
	p.t.Helper()
	own := p.t.TempDir()
	p.On(Create, 0, Ask(func(body []byte) []byte {
		var asked map[string]json.RawMessage
		var host map[string]json.RawMessage
		var mounts []map[string]json.RawMessage
		if json.Unmarshal(body, &asked) != nil || json.Unmarshal(asked["HostConfig"], &host) != nil || json.Unmarshal(host["Mounts"], &mounts) != nil {
			return body
		}
		for _, m := range mounts {
			var source string
			_ = json.Unmarshal(m["Source"], &source)
			if rest, below := strings.CutPrefix(source, dir+"/"); below {
				source = filepath.Join(own, rest)
				for at := source; at != filepath.Dir(own); at = filepath.Dir(at) {
					_ = os.MkdirAll(at, 0o777)
					_ = os.Chmod(at, 0o777) // whoever works in the container
				}
				m["Source"], _ = json.Marshal(source)
			}
		}
		host["Mounts"], _ = json.Marshal(mounts)
		asked["HostConfig"], _ = json.Marshal(host)
		out, _ := json.Marshal(asked)
		return out
	}))
	p.On(Inspect, 0, Say(func(body []byte) []byte { return bytes.ReplaceAll(body, []byte(own+"/"), []byte(dir+"/")) }))
}

// outcome is what a call has come to at the engine; ok is false where the engine could not be reached or broke off.
type outcome struct {
	*reply
	body []byte
	ok   bool
}

// whole passes the call to the engine and reads all of the answer, whether the client waits for it or not. Of a call that
// attaches a process only the head is read: the process is there then.
func (x *exchange) whole() *outcome {
	sent, err := io.ReadAll(x.r.Body) // the server sees the client go only when it has read all
	if err != nil {
		return &outcome{}
	}
	return x.wholeOf(sent)
}

func (x *exchange) wholeOf(sent []byte) *outcome {
	answer, err := x.send(x.proxy.ctx, sent)
	if err != nil {
		return &outcome{}
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return &outcome{reply: answer, ok: true}
	}
	body, err := io.ReadAll(answer.Body)
	answer.close()
	return &outcome{reply: answer, body: body, ok: err == nil}
}

// give lets the client have what the engine answered.
func (x *exchange) give(o *outcome) {
	switch {
	case !o.ok:
		x.cut()
	case o.StatusCode == http.StatusSwitchingProtocols:
		defer o.close()
		x.tunnel(o.reply)
	default:
		x.write(o.Response, o.body)
	}
}

// drop is for what the client does not get.
func (o *outcome) drop() {
	if o.ok {
		o.close()
	}
}

// waitForRelease waits for Release; false if the client or the proxy ends first.
func (x *exchange) waitForRelease() bool {
	select {
	case <-x.rule.released:
		return true
	case <-x.r.Context().Done():
		return false
	}
}

func (x *exchange) fail(status int) {
	x.w.Header().Set("Content-Type", "application/json")
	x.w.WriteHeader(status)
	_ = json.NewEncoder(x.w).Encode(map[string]string{"message": "the engine failed, says the test"})
}
