package store

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// The mark is the number of the newest transaction that is known to be committed, kept beside the gate. It is raised after
// every commit, so it is never ahead of a sound file: a file whose newest readable transaction is below it has lost one.

const markFormat = "laufwerk.mark 1 %016x"

func writeMark(path string, txid uint64) error {
	line := fmt.Sprintf(markFormat, txid)
	return files.Overwrite(path, fmt.Appendf(nil, "%s %08x\n", line, checksum([]byte(line))))
}

// readMark is the mark; false where there is none, or none that can be believed.
func readMark(path string) (uint64, bool, error) {
	b, err := files.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	var txid uint64
	var sum uint32
	n, _ := fmt.Sscanf(string(b), markFormat+" %08x", &txid, &sum)
	return txid, n == 2 && sum == checksum(fmt.Appendf(nil, markFormat, txid)), nil
}
