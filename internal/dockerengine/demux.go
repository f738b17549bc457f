package dockerengine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// demux splits an attached stream into its two outputs: frames of one byte for the output, three of zero, and the payload's
// length as four bytes, big endian. Docker's own stdcopy takes a frame that is cut in the middle for the stream's end; here
// it is io.ErrUnexpectedEOF.
func demux(stdout, stderr io.Writer, in io.Reader) error {
	var head [8]byte
	for {
		if _, err := io.ReadFull(in, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		size := int64(binary.BigEndian.Uint32(head[4:]))
		var out io.Writer
		switch head[0] {
		case 1:
			out = stdout
		case 2:
			out = stderr
		case 3: // the engine's own word on why it cannot go on
			text, _ := io.ReadAll(io.LimitReader(in, min(size, 64<<10)))
			return fmt.Errorf("the engine ended the stream: %s", text)
		default:
			return fmt.Errorf("the stream is not what an engine sends: a frame of kind %d", head[0])
		}
		if n, err := io.CopyN(out, in, size); err != nil {
			if n < size && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
}
