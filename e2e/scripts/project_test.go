package scripts_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	bolt "go.etcd.io/bbolt"

	"github.com/laufwerk/laufwerk/e2e"
)

// scriptProject is a project for scripts about something else: a copy of the project, one turn of $HOME/agent.sh in it, a
// question, write-back. It has a.txt, sub/b.txt and run.sh.
func scriptProject() map[string]string {
	return map[string]string{
		"a.txt": "a\n", "sub/b.txt": "b\n", "run.sh": "echo run\n",
		"laufwerk/execution.ts": `import { createLocalExecution } from "@laufwerk/execution/local";
export const execution = createLocalExecution();
`,
		"laufwerk/laufwerk.config.ts": `import { defineConfig } from "@laufwerk/sdk";
import { execution } from "./execution";
export default defineConfig({ projectId: "job", executions: [execution] });
`,
		"laufwerk/workflows/job/workflow.ts": `import { defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";
import { createCommand } from "@laufwerk/sdk/harness/command";
import { execution } from "../../execution";

const agent = execution.agent({ harness: createCommand({ command: ["bash", "-c", "exec bash \"$HOME/agent.sh\""] }) });

export const workflow = defineWorkflow<{ timeout?: number; allow?: string[] } | null, string>({
  name: "job",
  *run(input) {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const writer = yield* Session.open({ key: "writer", agent, workspace });
    yield* writer.ask({ key: "edit", prompt: "edit", timeout: input?.timeout });
    yield* writer.close();
    const { changes } = yield* Workspace.diff({ workspace });
    if (changes.length === 0) return "unchanged";
    if (!(yield* Human.confirm({ key: "approve", title: "Write back?", workspace }))) return "declined";
    yield* Workspace.writeBack({ workspace, allow: input?.allow });
    return "written";
  },
});
`,
	}
}

// projectCommand writes the project of scriptProject into a directory.
func projectCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: project DIR")
	}
	for name, content := range scriptProject() {
		path := filepath.Join(ts.MkAbs(args[0]), name)
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		ts.Check(os.WriteFile(path, []byte(content), 0o644))
	}
}

// jsonenvCommand keeps a value of a JSON document, see jsonCommand, in a variable of the script.
func jsonenvCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: jsonenv NAME FILE PATH")
	}
	text := strings.TrimSpace(ts.ReadFile(args[1]))
	var doc any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		ts.Fatalf("%s is not a JSON document: %v\n%s", args[1], err, text)
	}
	value, found := dig(doc, args[2])
	if !found {
		ts.Fatalf("%s is not in\n%s", args[2], text)
	}
	ts.Setenv(args[0], compact(value))
}

// peakCommand runs a command and keeps the peak of its resident memory, in MiB, in a variable of the script. The memory of
// processes that it waited for counts where it is higher.
func peakCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: peak NAME CODE COMMAND...")
	}
	program, err := exec.LookPath(args[2])
	ts.Check(err)
	cmd := exec.Command(program, args[3:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "WORK", "TMPDIR", "TERM", "LAUFWERK_HOME"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	code, peak, out, err := e2e.MeasurePeak(cmd)
	ts.Check(err)
	if strconv.Itoa(code) != args[1] {
		ts.Fatalf("exit code %d, want %s\n%.4000s", code, args[1], out)
	}
	ts.Setenv(args[0], fmt.Sprint(peak>>10))
}

// unmountBelow takes away what a script has mounted and not unmounted.
func unmountBelow(work string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return // only Linux has it, and only there scripts mount
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], work+"/") {
			_ = exec.Command("umount", "-l", f[1]).Run()
		}
	}
}

// storeformatCommand gives a store another format, as another version of laufwerk would have written it: its checksums are right.
func storeformatCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: storeformat FILE FORMAT")
	}
	db, err := bolt.Open(ts.MkAbs(args[0]), 0o600, nil)
	ts.Check(err)
	ts.Check(db.Update(func(tx *bolt.Tx) error {
		const name, key = "laufwerk", "format"
		b := tx.Bucket([]byte(name))
		var record map[string]json.RawMessage
		if err := json.Unmarshal(b.Get([]byte(key))[len("00000000 "):], &record); err != nil {
			return err
		}
		record["format"] = json.RawMessage(strconv.Quote(args[1]))
		value, err := json.Marshal(record)
		if err != nil {
			return err
		}
		sum := crc32.Checksum([]byte(name+"\x00"+key+"\x00"+string(value)), crc32.MakeTable(crc32.Castagnoli))
		return b.Put([]byte(key), fmt.Appendf(nil, "%08x %s", sum, value))
	}))
	ts.Check(db.Close())
}

// journalformatCommand gives a journal another format, as another version of laufwerk would have begun it, with a field that this
// one does not know. The first frame is length, checksum, record.
func journalformatCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: journalformat FILE FORMAT")
	}
	path := ts.MkAbs(args[0])
	log, err := os.ReadFile(path)
	ts.Check(err)
	const head = 8
	if len(log) < head || len(log) < head+int(binary.LittleEndian.Uint32(log)) {
		ts.Fatalf("%s is no journal", args[0])
	}
	end := head + int(binary.LittleEndian.Uint32(log))
	var begin map[string]json.RawMessage
	ts.Check(json.Unmarshal(log[head:end], &begin))
	begin["version"], begin["addition"] = json.RawMessage(strconv.Quote(args[1])), json.RawMessage(`{"later":true}`)
	record, err := json.Marshal(begin)
	ts.Check(err)
	length := binary.LittleEndian.AppendUint32(nil, uint32(len(record))) //nolint:gosec // it is small
	sum := crc32.Checksum(append(length[:4:4], record...), crc32.MakeTable(crc32.Castagnoli))
	frame := append(binary.LittleEndian.AppendUint32(length, sum), record...)
	ts.Check(os.WriteFile(path, append(frame, log[end:]...), 0o600))
}

// atmostCommand compares whole numbers.
func atmostCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: atmost NUMBER LIMIT")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	limit, err := strconv.Atoi(args[1])
	ts.Check(err)
	if (n <= limit) == neg {
		ts.Fatalf("%d, limit %d", n, limit)
	}
}
