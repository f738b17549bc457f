package render

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

func ui(tty bool, mode string) (*UI, *bytes.Buffer, *bytes.Buffer) {
	var out, errs bytes.Buffer
	u := New(&system.Env{Out: &out, Err: &errs, OutTTY: tty, ErrTTY: tty, Vars: map[string]string{"TERM": "xterm"}}, func() string { return mode })
	u.Schema = "laufwerk.test/1"
	return u, &out, &errs
}

func full() error {
	f := failure.New(failure.WriteBackConflict, "the source changed in 2 paths").WithHint("laufwerk diff r1\nlaufwerk resume r1").
		WithPaths("a.txt", "evil\x1b[2J\nname").WithField("run", "r1")
	f.Conditions = []failure.Condition{{ID: "source", Message: "changed\nsince"}}
	return failure.Wrap(f, failure.Failed, "write back")
}

func TestFailureAsText(t *testing.T) {
	u, out, errs := ui(false, "auto")
	u.Failure(full())
	want := `error: write back: the source changed in 2 paths
  a.txt
  evil\x1b[2J\nname
  source: changed
    since
next: laufwerk diff r1
      laufwerk resume r1
`
	if errs.String() != want || out.Len() != 0 {
		t.Errorf("got\n%s\nwant\n%s\nstdout %q", errs, want, out)
	}
}

func TestAConditionThatTheMessageEndsWithIsNotSaidTwice(t *testing.T) {
	u, _, errs := ui(false, "auto")
	f := failure.New(failure.NotReady, "the target is not ready: no image")
	f.Conditions = []failure.Condition{{ID: "docker.image", Message: "no image"}, {ID: "docker.env", Message: "A is not set"}}
	u.Failure(f)
	if want := "error: the target is not ready: no image\n  docker.env: A is not set\n"; errs.String() != want {
		t.Errorf("got\n%s\nwant\n%s", errs, want)
	}
}

func TestFailureAsJSON(t *testing.T) {
	u, out, errs := ui(true, "always")
	u.JSON = true
	u.Failure(failure.Wrap(Attach(full(), map[string]any{"run": "r1"}), failure.Failed, "run"))
	var doc struct {
		Schema string `json:"schema"`
		Run    string `json:"run"`
		Error  struct {
			Code, Message, Hint string
			Paths               []string
		} `json:"error"`
		Conditions []failure.Condition `json:"conditions"`
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if doc.Schema != "laufwerk.test/1" || doc.Run != "r1" || doc.Error.Code != "write_back_conflict" || doc.Error.Paths[1] != "evil\x1b[2J\nname" || len(doc.Conditions) != 1 {
		t.Errorf("%s", out)
	}
	if errs.Len() != 0 || strings.Count(out.String(), "\n") != 1 || !strings.HasPrefix(out.String(), `{"schema":`) {
		t.Errorf("stderr %q, stdout %q", errs, out)
	}
}

func TestForeignErrorsHaveAKindAndConditionsAreAList(t *testing.T) {
	u, out, _ := ui(false, "auto")
	u.JSON = true
	u.Failure(errors.New("it broke"))
	if got, want := out.String(), `{"schema":"laufwerk.test/1","error":{"code":"failed","message":"it broke","hint":""},"conditions":[]}`+"\n"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func TestArgumentsAreSanitisedAndStylesAreNot(t *testing.T) {
	u, out, errs := ui(true, "auto")
	type name string
	u.Printf("%s %v %d %s\n", "a\x1b]0;x\a", name("b\r"), 7, u.Out.Good("c\u202e"))
	u.Talkf("%s\n", errors.New("d\x9b"))
	if got, want := out.String(), "a\\x1b]0;x\\x07 b\\r 7 \x1b[32mc\\u202e\x1b[0m\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if got, want := errs.String(), "d\\x9b\n"; got != want {
		t.Errorf("stderr %q, want %q", got, want)
	}
}

func TestStylesGoLineByLine(t *testing.T) {
	u, _, _ := ui(true, "auto")
	if got, want := u.Out.Bold("a\tb\n\nlonger").String(), "\x1b[1ma\tb\x1b[0m\n\n\x1b[1mlonger\x1b[0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEachFormHasItsOwnOutput(t *testing.T) {
	u, out, _ := ui(false, "auto")
	u.Printf("text\n")
	u.Table([]string{"A"}, [][]any{{"cell"}})
	_ = u.Document(struct{ A int }{1})
	if got := out.String(); got != "text\ncell\n" {
		t.Errorf("%q", got)
	}
	u, out, _ = ui(false, "auto")
	u.JSON = true
	u.Printf("text\n")
	u.Table([]string{"A"}, [][]any{{"cell"}})
	_ = u.Document(struct {
		Text string `json:"text"`
	}{"<a>\u009b"})
	_ = u.Document(struct{}{})
	if got, want := out.String(), `{"schema":"laufwerk.test/1","text":"<a>\u009b"}`+"\n"+`{"schema":"laufwerk.test/1"}`+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := u.Document([]int{1}); !failure.Is(err, failure.Internal) {
		t.Errorf("a list as document: %v", err)
	}
}

func TestLongIDsAreShortAndDistinctOnATerminal(t *testing.T) {
	const engine = "GPH3:Y5NB:RJ53:5YJN:LRO2:C34P:ZNBK:Q5IB:LP7Z:6SOL:5WQJ:7O73"
	one, like, other := strings.Repeat("0123", 16), strings.Repeat("0123", 4)+strings.Repeat("f", 48), strings.Repeat("ab", 32)
	rows := [][]any{{one, "sha256:" + one + " on the docker engine " + engine + " at /var"}, {other, engine[:15] + "AAAA" + engine[19:] + " has no container " + other}}
	u, out, _ := ui(true, "never")
	u.Table([]string{"ID", "WHERE"}, rows)
	if want := `ID                WHERE
0123012301230123  sha256:0123012301230123 on the docker engine GPH3:Y5NB:RJ53:5YJN… at /var
abababababababab  GPH3:Y5NB:RJ53:AAAA… has no container abababababababab
`; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	u, out, _ = ui(false, "never")
	u.Table([]string{"ID", "WHERE"}, rows)
	for _, row := range rows {
		if want := row[0].(string) + "\t" + row[1].(string) + "\n"; !strings.Contains(out.String(), want) {
			t.Errorf("%s\nis not in\n%s", want, out)
		}
	}
	if got := Brief([]string{one, engine}); got[0] != one[:12] || got[1] != "GPH3:Y5NB:RJ53…" {
		t.Errorf("%q", got)
	}
	if got := Brief([]string{one, like}); got[0] != one[:17] || got[1] != like[:17] {
		t.Errorf("%q", got)
	}
}

func TestTable(t *testing.T) {
	rows := [][]any{{"日本", "ok\tx", 3}, {"a\nb", Name("long name"), "end"}}
	u, out, _ := ui(true, "never")
	u.Table([]string{"NAME", "STATE", "N"}, rows)
	want := "NAME  STATE      N\n日本  ok\\tx      3\na\\nb  long name  end\n"
	if out.String() != want {
		t.Errorf("on a terminal:\n%s\nwant\n%s", out, want)
	}
	u, out, _ = ui(false, "auto")
	u.Table([]string{"NAME", "STATE", "N"}, rows)
	if got, want := out.String(), "日本\tok\\tx\t3\na\\nb\tlong name\tend\n"; got != want {
		t.Errorf("elsewhere: %q, want %q", got, want)
	}
}

// One long cell is no reason to fill up the others' rows until they are folded as well.
func TestALongCellMovesItsOwnRowAlone(t *testing.T) {
	u, out, _ := ui(true, "never")
	long := strings.Repeat("long ", 20)
	u.Table([]string{"A", "PROOF", "WHERE"}, [][]any{{"1", long, "here"}, {"2", "present", "there"}})
	if want := "A  PROOF    WHERE\n1  " + long + "  here\n2  present  there\n"; out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
}

type refusing struct{ err error }

func (r refusing) Write([]byte) (int, error) { return 0, r.err }

func TestLostOutput(t *testing.T) {
	for _, c := range []struct {
		cause error
		lost  bool
	}{{syscall.EPIPE, false}, {syscall.ENOSPC, true}} {
		u := New(&system.Env{Out: refusing{c.cause}, Err: refusing{c.cause}}, func() string { return "auto" })
		u.Printf("data")
		if got := u.WriteError() != nil; got != c.lost {
			t.Errorf("%v: lost %t, want %t", c.cause, got, c.lost)
		}
	}
}
