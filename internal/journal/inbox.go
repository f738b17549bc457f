package journal

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// MessageKind is what another process wants of the worker.
type MessageKind string

// The kinds of messages.
const (
	Answer MessageKind = "answer"
	Cancel MessageKind = "cancel"
)

// Sender sent a message: kept with an approval.
type Sender struct {
	UID      int      `json:"uid"`
	User     string   `json:"user,omitempty"`
	Terminal string   `json:"terminal,omitempty"` // "" where there was none
	Chain    []string `json:"chain,omitempty"`    // the process and its ancestors, as "pid command"
}

// Message waits in the inbox until the lease holder has journaled what follows from it.
type Message struct {
	Kind   MessageKind     `json:"kind"`
	At     time.Time       `json:"at"`
	Key    string          `json:"key,omitempty"`    // answer: the question's
	Value  json.RawMessage `json:"value,omitempty"`  // answer
	Digest string          `json:"digest,omitempty"` // answer: the frozen content that the person was shown
	Reason string          `json:"reason,omitempty"` // cancel
	Who    Sender          `json:"who"`
	name   string
}

// ID tells messages apart.
func (m Message) ID() string { return m.name }

// InboxDir is the folder to watch.
func (j *Journal) InboxDir() string { return filepath.Join(j.dir, "inbox") }

// Send puts a message into the inbox, whole or not at all.
func (j *Journal) Send(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var random [6]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	if err := files.MkdirAll(j.InboxDir()); err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "make the run's inbox")
	}
	name := fmt.Sprintf("%020d-%s-%s.json", m.At.UnixNano(), m.Kind, hex.EncodeToString(random[:]))
	crash.Point("journal/before-send")
	if err := files.Create(filepath.Join(j.InboxDir(), name), b); err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "leave the message for the run")
	}
	crash.Point("journal/after-send")
	return nil
}

// Messages are those in the inbox, oldest first. What is no message is passed over.
func (j *Journal) Messages() ([]Message, error) {
	names, err := files.Names(j.InboxDir())
	if err != nil {
		return nil, err
	}
	var out []Message
	for _, name := range names {
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		var m Message
		if err := files.ReadJSON(filepath.Join(j.InboxDir(), name), &m); err != nil {
			continue
		}
		m.name = name
		out = append(out, m)
	}
	return out, nil
}

// RemoveMessage removes a message whose consequence is journaled.
func (j *Journal) RemoveMessage(m Message) error {
	crash.Point("journal/before-done")
	return files.Remove(filepath.Join(j.InboxDir(), m.name))
}
