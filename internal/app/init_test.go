package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What the package initialisation of all libraries together may be in every process: the packages that have one, a tenth more than
// there are, and what they allocate, which hardly differs from start to start: a fifth more than there is. Our own packages have
// nothing to make at a start but what is generated for OpenShell's messages. The time is a row of `make bench`.
const (
	initPackages = 240
	initBytes    = 1280 << 10
	ownBytes     = 1 << 10
)

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, \S+ ms clock, (\d+) bytes`)

// TestPackageInitialisationIsCheap adds up, for each package, the least of several starts: chance only ever adds.
func TestPackageInitialisationIsCheap(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "laufwerk")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "../../cmd/laufwerk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	least := map[string]int{}
	for range 7 {
		cmd := exec.Command(binary, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, m := range initLine.FindAllStringSubmatch(string(out), -1) {
			bytes, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			if old, seen := least[m[1]]; !seen || bytes < old {
				least[m[1]] = bytes
			}
		}
	}
	if len(least) < 5 {
		t.Fatalf("inittrace named only %v: has its format changed?", least)
	}
	all, own := 0, 0
	for name, bytes := range least {
		all += bytes
		if strings.HasPrefix(name, "github.com/laufwerk/") && !strings.HasSuffix(name, "/openshell/wire") {
			own += bytes
		}
	}
	t.Logf("%d packages, %d bytes, %d of them our own", len(least), all, own)
	if len(least) > initPackages {
		t.Errorf("%d packages are initialised, the budget is %d: %v", len(least), initPackages, least)
	}
	if all > initBytes || own > ownBytes {
		t.Errorf("package initialisation allocates %d bytes, the budget is %d; our own packages %d of %d: %v", all, initBytes, own, ownBytes, least)
	}
}

// TestNothingAsksTheTerminal keeps out the packages whose initialisation writes a query to the terminal.
func TestNothingAsksTheTerminal(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "../../cmd/laufwerk").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list named only %d packages", len(deps))
	}
	for _, dep := range deps {
		for _, forbidden := range []string{"github.com/charmbracelet/bubbletea", "github.com/charmbracelet/huh", "testing", "github.com/laufwerk/laufwerk/internal/testkit"} {
			if dep == forbidden {
				t.Errorf("the binary contains %s", dep)
			}
		}
	}
}
