package session

import (
	"context"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// Close ends all processes of the session, releases its claim and its locks, and returns when their absence was observed. It
// needs nothing but the claim, and may be called again. Where the provider cannot be asked now, it fails with NotReady: the run
// is suspended, and the session closed when the provider answers.
func (m *Manager) Close(ctx context.Context, key string) error {
	err := m.close(ctx, key)
	if failure.Is(err, failure.CloseFailed) && hasKind(err, failure.NotReady) {
		return failure.New(failure.NotReady, "%v", err).WithHint("laufwerk resume %s", m.Run)
	}
	return err
}

func (m *Manager) close(ctx context.Context, key string) error {
	s, leave, err := m.enqueue(ctx, key)
	if err != nil {
		return err
	}
	defer leave()
	if s.closed {
		return nil
	}
	_, err = m.Driver.Get(ctx, s.claim)
	switch {
	case failure.Is(err, failure.NotFound): // nothing was ever allocated
	case err != nil:
		return err
	default:
		if err := m.release(ctx, s.claim); err != nil {
			return failure.New(failure.CloseFailed, "the session %q could not be closed", key).WithCause(err).WithHint("laufwerk cleanup %s", m.Run)
		}
	}
	if err := m.Driver.DropLocks(ctx, s.claim); err != nil {
		return err
	}
	m.setClosed(s)
	return nil
}

// releaseRetryTime is how long the release of a claim is tried again after a fault that may pass.
const releaseRetryTime = 3 * time.Second

// release releases a claim, over a broken connection or an error of the provider that passes within patience.
func (m *Manager) release(ctx context.Context, claim string) error {
	began := m.Now()
	for pause := releaseRetryTime / 32; ; pause *= 2 {
		_, err := m.Driver.Release(ctx, claim)
		again := hasKind(err, failure.NotReady) || hasKind(err, failure.OutcomeUnknown)
		if !again || m.Now().Sub(began)+pause > releaseRetryTime {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// hasKind says whether err is a failure of a kind, or wraps one.
func hasKind(err error, kind failure.Kind) bool {
	for f := failure.As(err); f != nil; f = failure.As(f.Err) {
		if f.Kind == kind {
			return true
		}
	}
	return false
}

// CloseAll closes what is still open, and returns the first failure after having tried all.
func (m *Manager) CloseAll(ctx context.Context) error {
	var first error
	for _, key := range m.open() {
		if err := m.close(ctx, key); err != nil && first == nil {
			first = err
		}
	}
	if err := m.closeHost(ctx); err != nil && first == nil {
		first = err
	}
	return first
}

func (m *Manager) open() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var keys []string
	for k, s := range m.sessions {
		if !s.closed {
			keys = append(keys, k)
		}
	}
	return keys
}
