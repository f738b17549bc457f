package app_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What the package initialisation of all libraries together may take in every process. The time, in milliseconds, is several
// times what it takes, and about half of what one careless library costs. What is allocated hardly differs from start to start: it
// is a fifth more than there is. Our own packages have nothing to make at a start but what is generated for OpenShell's messages.
const (
	initBudget = 4.0
	initBytes  = 1280 << 10
	ownBytes   = 1 << 10
)

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock, (\d+) bytes`)

// TestPackageInitialisationIsCheap adds up, for each package, the fastest of several starts: noise only ever adds.
func TestPackageInitialisationIsCheap(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "laufwerk")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", binary, "../../cmd/laufwerk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	fastest, least := map[string]float64{}, map[string]int{}
	for range 7 {
		cmd := exec.Command(binary, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, m := range initLine.FindAllStringSubmatch(string(out), -1) {
			ms, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			bytes, err := strconv.Atoi(m[3])
			if err != nil {
				t.Fatal(err)
			}
			if old, seen := fastest[m[1]]; !seen || ms < old {
				fastest[m[1]] = ms
			}
			if old, seen := least[m[1]]; !seen || bytes < old {
				least[m[1]] = bytes
			}
		}
	}
	if len(fastest) < 5 {
		t.Fatalf("inittrace named only %v: has its format changed?", fastest)
	}
	sum, all, own := 0.0, 0, 0
	for name, ms := range fastest {
		sum += ms
		all += least[name]
		if strings.HasPrefix(name, "github.com/laufwerk/") && !strings.HasSuffix(name, "/openshell/wire") {
			own += least[name]
		}
	}
	t.Logf("%d packages, %.2f ms, %d bytes, %d of them our own", len(fastest), math.Round(sum*100)/100, all, own)
	if sum > initBudget {
		t.Errorf("package initialisation takes %.2f ms, the budget is %.1f: %v", sum, initBudget, fastest)
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
