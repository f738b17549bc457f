package dockerengine

import "context"

// Engines is how engines are reached.
type Engines struct {
	// Connect is a connection to the engine behind a socket ("unix:///…"), made once or kept; "" is the one that the worker's
	// settings lead to.
	Connect func(ctx context.Context, host string) (*Engine, error)
	Host    func() (string, error) // which that is; nil where it is not known without connecting
}

// FindByIdentity is the engine with an identity, which was at host when that was recorded. Where another one answers there, or none, the
// one that the settings lead to may be it: a socket can move, an identity cannot. another is the failure of one that answers and
// is not it.
func (s Engines) FindByIdentity(ctx context.Context, host, identity string, another func(*Engine) error) (*Engine, error) {
	e, err := s.Connect(ctx, host)
	if err == nil && e.Facts().Identity() == identity {
		return e, nil
	}
	if err != nil && s.Host != nil {
		if settings, herr := s.Host(); herr == nil && settings == host {
			return nil, err // it is the same socket
		}
	}
	if other, oerr := s.Connect(ctx, ""); oerr == nil && other.Facts().Identity() == identity {
		return other, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, another(e)
}
