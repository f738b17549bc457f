package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// onTmpfs is a directory that no disk slows down, where there is one.
func onTmpfs(tb testing.TB) string {
	tb.Helper()
	if dir, err := os.MkdirTemp("/dev/shm", "laufwerk-bench"); err == nil {
		tb.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	return tb.TempDir()
}

func manyFiles(tb testing.TB, dir string, n int) {
	tb.Helper()
	content := make([]byte, 2048)
	for i := range n {
		d := fmt.Sprintf("%s/d%02d/e%02d", dir, i/5000, i/100%50)
		if i%100 == 0 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				tb.Fatal(err)
			}
		}
		copy(content, fmt.Sprint(i))
		if err := os.WriteFile(fmt.Sprintf("%s/file%03d.txt", d, i%100), content, 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkCopyBesideCp copies 100,000 files with manifest and with `cp -a`, in turn, and reports the medians' ratio; then
// the ratio of a scan in which nothing changed.
func BenchmarkCopyBesideCp(b *testing.B) {
	dir := onTmpfs(b)
	src := dir + "/src"
	manyFiles(b, src, 100_000)
	var ours, cps, scans []time.Duration
	timed := func(into *[]time.Duration, do func() error) {
		start := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		*into = append(*into, time.Since(start))
	}
	for range max(3, b.N) {
		dest := dir + "/dest"
		var o OpenRecord
		timed(&ours, func() (err error) {
			o, err = Copy(context.Background(), CopyRequest{Source: src, Dest: dest})
			if err == nil {
				err = SaveManifest(dir+"/base", o.Base)
			}
			return err
		})
		timed(&scans, func() error {
			r, err := OpenTree(dest, o.Tree)
			if err != nil {
				return err
			}
			defer r.Close()
			base, err := LoadManifest(dir + "/base")
			if err != nil {
				return err
			}
			m, _, err := Scan(context.Background(), r, ScanOptions{Base: &base})
			if err == nil && len(Compare(base, m)) > 0 {
				b.Fatal("it changed")
			}
			return err
		})
		if err := os.RemoveAll(dest); err != nil {
			b.Fatal(err)
		}
		timed(&cps, func() error { return exec.Command("cp", "-a", src, dest).Run() })
		if err := os.RemoveAll(dest); err != nil {
			b.Fatal(err)
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return d[len(d)/2].Seconds()
	}
	b.ReportMetric(median(ours), "s-copy")
	b.ReportMetric(median(cps), "s-cp-a")
	b.ReportMetric(median(scans), "s-scan")
	b.ReportMetric(median(ours)/median(cps), "copy/cp-a")
	b.ReportMetric(median(scans)/median(cps), "scan/cp-a")
	b.ReportMetric(0, "ns/op")
}

// Memory does not grow with a file: 8 GiB in the benchmark, less where it is only to be held.
func copySparse(tb testing.TB, size int64) uint64 {
	tb.Helper()
	dir := onTmpfs(tb)
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	must(os.Mkdir(dir+"/src", 0o755))
	must(os.WriteFile(dir+"/src/f", nil, 0o644))
	must(os.Truncate(dir+"/src/f", size))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o, err := Copy(context.Background(), CopyRequest{Source: dir + "/src", Dest: filepath.Join(dir, "dest")})
	must(err)
	runtime.ReadMemStats(&after)
	if o.Base.Entries[0].Size != size {
		tb.Fatalf("%+v", o.Base.Entries[0])
	}
	return after.TotalAlloc - before.TotalAlloc
}

func TestMemoryDoesNotGrowWithAFile(t *testing.T) {
	if got := copySparse(t, 512<<20); got > 16<<20 {
		t.Errorf("%d bytes were allocated", got)
	}
}

func BenchmarkSparse8GiB(b *testing.B) {
	for range b.N {
		b.ReportMetric(float64(copySparse(b, 8<<30))/(1<<20), "MiB-allocated")
	}
}
