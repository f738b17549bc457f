package dockerengine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// hijackedConn is a connection that an HTTP request turned into a plain stream in both directions.
type hijackedConn struct {
	*connection
	r *bufio.Reader // what came behind the answer
}

func (h *hijackedConn) Read(b []byte) (int, error) { return h.r.Read(b) }

// hijack posts body and takes over the connection. The client's own way drops the text of a refusal and waits for a hung
// engine without end. The connection outlives the call: from then on life ends it.
func (e *Engine) hijack(c *call, life context.Context, path string, body any) (*hijackedConn, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, e.url(path), bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "tcp")

	conn, err := e.connect(c.ctx)
	if err != nil {
		c.failed.Store(&err)
		return nil, err
	}
	c.useConnection(conn)
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	h, err := e.upgrade(c, conn.(*connection), req)
	if !stop() && err == nil {
		err = c.ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	context.AfterFunc(life, func() { _ = conn.Close() })
	return h, nil
}

func (e *Engine) upgrade(c *call, conn *connection, req *http.Request) (*hijackedConn, error) {
	if err := req.Write(conn); err != nil {
		c.failed.Store(&err)
		return nil, err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		c.failed.Store(&err)
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer resp.Body.Close()
		c.status.Store(int32(resp.StatusCode)) //nolint:gosec // three digits
		return nil, responseError(resp)
	}
	c.status.Store(http.StatusSwitchingProtocols)
	return &hijackedConn{conn, r}, nil
}

// url is where a request goes that the client has no method for.
func (e *Engine) url(path string) string { return "http://docker/v" + e.client.ClientVersion() + path }

// responseError is the engine's own text in an answer that is none of success.
func responseError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var answer struct{ Message string }
	if json.Unmarshal(text, &answer) == nil && answer.Message != "" {
		text = []byte(answer.Message)
	}
	return fmt.Errorf("%s (HTTP %d)", strings.TrimSpace(string(text)), resp.StatusCode)
}

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
			return fmt.Errorf("the stream of the engine is invalid: it has a frame of kind %d", head[0])
		}
		if n, err := io.CopyN(out, in, size); err != nil {
			if n < size && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
}
