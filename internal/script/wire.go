package script

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/laufwerk/laufwerk/internal/protocol"
)

// maxLine is the longest message in bytes: a file of 16 MiB in base64 fits well.
const maxLine = 64 << 20

var errTooLong = fmt.Errorf("a message is longer than %d bytes", maxLine)

// lineReader reads newline-delimited messages of bounded length.
type lineReader struct{ r *bufio.Reader }

func newLineReader(r io.Reader) *lineReader { return &lineReader{bufio.NewReaderSize(r, 64<<10)} }

func (l *lineReader) next() (*protocol.Message, error) {
	line, err := l.line()
	if err != nil {
		return nil, err
	}
	m := &protocol.Message{}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, fmt.Errorf("not a message: %w", err)
	}
	return m, nil
}

// line is the next line; it is valid until the one after that is read.
func (l *lineReader) line() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, errTooLong
		}
		if err == nil && line == nil {
			return part, nil
		}
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

// lineWriter writes messages, several goroutines may.
type lineWriter struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func newLineWriter(w io.Writer) *lineWriter { return &lineWriter{w: bufio.NewWriterSize(w, 64<<10)} }

func (l *lineWriter) send(ms ...*protocol.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range ms {
		b, err := encode(m)
		if err != nil {
			return err
		}
		if len(b) > maxLine {
			return errTooLong
		}
		if _, err := l.w.Write(b); err != nil {
			return err
		}
	}
	return l.w.Flush()
}

// encode is a line of JSON that leaves <, > and & as they are: values cross as the program wrote them.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
