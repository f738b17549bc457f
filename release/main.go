// Release packs our own program for `make release`, which lays what comes out of it over internal/guest/carried.
//
// Of the directory that is its argument it takes the plain builds linux-amd64 and linux-arm64, and puts beside each what a
// binary carries of it, and for each platform of a release the overlay to build it with: linux-arm64.json has all but the
// program that a release for linux/arm64 is itself.
package main

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// at is where a release's binary has them; the build runs in the root of the module.
const at = "internal/guest/carried/packed"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: release DIR")
	}
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	programs := []string{"linux-amd64", "linux-arm64"}
	for _, name := range programs {
		if err := pack(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		over := map[string]string{}
		for _, name := range programs {
			for _, ending := range []string{".gz", ".sha256"} {
				if name != platform {
					over[at+"/"+name+ending] = filepath.Join(dir, name+ending)
				}
			}
		}
		b, err := json.MarshalIndent(map[string]any{"Replace": over}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, platform+".json"), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// pack writes path.gz and path.sha256. The compression is Go's and knows neither names nor times: the same program comes out
// as the same bytes on every machine.
func pack(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(path + ".gz")
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(z, sum), from)
	if err := errors.Join(err, z.Close(), to.Close()); err != nil {
		return err
	}
	return os.WriteFile(path+".sha256", []byte(hex.EncodeToString(sum.Sum(nil))+"\n"), 0o600)
}
