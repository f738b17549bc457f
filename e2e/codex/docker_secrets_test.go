package codex_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/events"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// search reads to the end, and says which of the words it saw.
func search(r io.Reader, words []string) (found []string, size int64, err error) {
	longest := 0
	for _, word := range words {
		longest = max(longest, len(word))
	}
	buffer := make([]byte, 4<<20)
	kept := 0
	seen := map[string]bool{}
	for {
		n, err := io.ReadAtLeast(r, buffer[kept:], 1)
		size += int64(n)
		have := buffer[:kept+n]
		for _, word := range words {
			if !seen[word] && bytes.Contains(have, []byte(word)) {
				seen[word] = true
				found = append(found, word)
			}
		}
		kept = copy(buffer, have[max(0, len(have)-longest):])
		if errors.Is(err, io.EOF) {
			return found, size, nil
		}
		if err != nil {
			return found, size, err
		}
	}
}

// without fails where one of the words is in what is read.
func (w *containerMachine) without(what string, r io.Reader, least int64, words []string) {
	w.T.Helper()
	found, size, err := search(r, words)
	if err != nil || size < least {
		w.T.Errorf("%s: read %d bytes, want %d at least: %v", what, size, least, err)
	}
	for _, word := range found {
		w.T.Errorf("%s has %.12s…", what, word)
	}
}

// The login is in the memory of the container that needs it, without the token that renews it, and nowhere else: neither
// while Codex works nor afterwards. The worker is killed meanwhile; the turn goes on and is paid for once. The agent finds its
// skill.
func TestCodexInContainersOutlivesItsWorkerAndKeepsTheLogin(t *testing.T) {
	t.Parallel()
	w := newContainerMachine(t)
	w.writeWorkflow(nil)
	w.ReplaceInFile("laufwerk/workflows/turn/workflow.ts", "agent({ harness", `agent({
  skills: [{ name: "release-notes", description: "How we write them", content: "Write xylophone.", files: { "scripts/say.sh": "#!/bin/sh\necho said by $(id -u)\n" } }],
  harness`)
	image := w.prepare()
	eventsOf := w.watchEvents()
	gate := make(chan struct{})
	w.Model.Play(testkit.Gate(gate, testkit.Shell("cd ~/codex/skills/release-notes && cat SKILL.md && scripts/say.sh; cat ~/codex/auth.json | tr -d '\\n' | cut -c1-2000")), testkit.Say("done"))
	cmd, _ := startWorker(w.CodexMachine, "run", "turn", "--no-input")
	awaitRequests(w.CodexMachine, 1)

	ours := engine.Containers(t, w.endpoint, owned.LabelOwner+"="+w.StoreOwner())
	if len(ours) != 1 {
		t.Fatalf("%d containers", len(ours))
	}
	id := ours[0].ID
	inspected, raw, err := w.client.ContainerInspectWithRaw(t.Context(), id, true)
	if err != nil {
		t.Fatal(err)
	}
	login, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/laufwerk/login/codex/auth.json", inspected.State.Pid))
	if err != nil || !bytes.Contains(login, []byte(w.Secrets[1])) || bytes.Contains(login, []byte(w.Secrets[2])) {
		t.Fatalf("the login in the container is not the one that is looked for: %v", err)
	}
	words := append([]string{"refresh-canary-"}, w.Secrets...) // the first is in every test's login: the image is older than this one
	w.without("the container's configuration", bytes.NewReader(raw), 1000, words)
	w.without("the arguments of all processes", strings.NewReader(argumentsOfAll()), 100, words)
	w.without("the environment of all processes", strings.NewReader(environmentOfAll()), 100, words)
	changes, err := w.client.ContainerDiff(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range changes { // the engine makes the places of mounts, and what has none is as in the image
		ours := strings.HasPrefix(c.Path, "/laufwerk") || c.Path == guest.Binary || strings.HasPrefix(guest.Binary, c.Path+"/")
		if !ours && c.Path != "/workspace" && c.Path != "/tmp" && c.Path != "/run" {
			t.Errorf("the writable layer has %s", c.Path)
		}
	}
	info, err := w.client.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"config.v2.json", "hostconfig.json"} {
		f, err := os.Open(filepath.Join(info.DockerRootDir, "containers", id, name))
		if err != nil {
			t.Fatal(err)
		}
		w.without("the engine's "+name, f, 100, words)
		_ = f.Close()
	}
	w.nowhereAtHome(words)

	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	close(gate)
	resumeAndCheck(w.CodexMachine, "done", 2)
	if left := engine.Containers(t, w.endpoint, owned.LabelOwner+"="+w.StoreOwner()); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
	if sent := w.Model.Requests(""); !strings.Contains(sent[0].Raw, "release-notes: How we write them") || !strings.Contains(sent[1].Raw, "Write xylophone.") || !strings.Contains(sent[1].Raw, "said by 65534") {
		t.Errorf("the skill: %.300v", e2e.LastInput(sent[1]))
	}
	if answer := w.Model.Requests("")[1].Raw; strings.Contains(answer, w.Secrets[2]) || !strings.Contains(answer, w.Secrets[1][:100]) {
		t.Errorf("the agent did not read its login, or the token that renews it: %.300v", e2e.LastInput(w.Model.Requests("")[1]))
	}
	w.nowhereAtHome(words)
	told := eventsOf(id)
	if !strings.Contains(told, "exec_create") {
		t.Errorf("the engine's events do not tell of our commands: %s", told)
	}
	w.without("the engine's events", strings.NewReader(told), 1000, words)
	saved, err := w.client.ImageSave(t.Context(), []string{image})
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	w.without("the image", saved, 300<<20, words)
}

// nowhereAtHome looks into every file below laufwerk's home, also in the sessions' own.
func (w *containerMachine) nowhereAtHome(words []string) {
	w.T.Helper()
	n := 0
	_ = filepath.WalkDir(w.Home, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // what is gone holds nothing
		}
		if b, err := os.ReadFile(path); err == nil {
			n++
			w.without(path, bytes.NewReader(b), 0, words)
		}
		return nil
	})
	if n < 3 {
		w.T.Errorf("only %d files are below %s", n, w.Home)
	}
}

// watchEvents keeps what the engine's events tell of each container from now on: the engine itself keeps the last 256 of all.
// The result is called once the container is removed.
func (w *containerMachine) watchEvents() func(id string) string {
	w.T.Helper()
	ctx, cancel := context.WithCancel(w.T.Context())
	w.T.Cleanup(cancel)
	// From a moment ago on: what happens before the request has come there is not missed.
	all, problems := w.client.Events(ctx, events.ListOptions{Since: fmt.Sprint(time.Now().Unix() - 1)})
	var mu sync.Mutex
	of, removed := map[string]string{}, map[string]bool{}
	go func() {
		for {
			select {
			case m := <-all:
				b, _ := json.Marshal(m)
				mu.Lock()
				of[m.Actor.ID] += string(b) + "\n"
				removed[m.Actor.ID] = removed[m.Actor.ID] || m.Action == events.ActionDestroy
				mu.Unlock()
			case <-problems:
				return
			}
		}
	}()
	return func(id string) string {
		w.T.Helper()
		e2e.Eventually(w.T, "the engine tells of the removed container", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return removed[id]
		})
		mu.Lock()
		defer mu.Unlock()
		return of[id]
	}
}

// environmentOfAll are the variables of every process on this machine.
func environmentOfAll() string {
	var all strings.Builder
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		all.Write(b)
	}
	return all.String()
}
