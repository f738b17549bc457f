package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

// DefaultWait bounds how long a transaction waits for its turn.
const DefaultWait = 10 * time.Second

// boltWait bounds the wait for bbolt's own lock, which only a program that bypasses the gate can hold.
const boltWait = 2 * time.Second

// Store is the small shared database of a home. Nothing is open between transactions: each takes the gate (locks/state),
// checks the file if someone else changed it, opens it, and closes it again. Transactions of one process exclude each other
// like those of two: none may be begun inside another.
type Store struct {
	home    *Home
	now     func() time.Time
	command string
	wait    time.Duration

	mu       sync.Mutex
	id       string    // once known
	verified fileStamp // the state of the file that was last found sound
}

// Open prepares access to the store of a home; it does no I/O. Command is how this process is called in the messages that
// others get while it holds the gate.
func Open(h *Home, now func() time.Time, command string) *Store {
	return &Store{home: h, now: now, command: command, wait: DefaultWait}
}

// SetWait replaces DefaultWait. It must not be called during a transaction.
func (s *Store) SetWait(d time.Duration) { s.wait = d }

// Home is where the store lives.
func (s *Store) Home() *Home { return s.home }

// ID is the store's random id, made with the store. It creates the store where there is none yet.
func (s *Store) ID(ctx context.Context) (string, error) {
	if id := s.cachedID(); id != "" {
		return id, nil
	}
	nothing := func(Tx) error { return nil }
	if err := s.View(ctx, nothing); err != nil {
		return "", err
	}
	if s.cachedID() == "" {
		if err := s.Update(ctx, nothing); err != nil {
			return "", err
		}
	}
	return s.cachedID(), nil
}

func (s *Store) cachedID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// View runs fn over a consistent state. A store that does not exist yet is empty, and is not made. Failures: LockHeld with
// the holder, StoreInvalid, StoreNewer, HomeInvalid, and what fn returns.
func (s *Store) View(ctx context.Context, fn func(Tx) error) error {
	exists, err := s.wasCreated()
	if err != nil {
		return err
	}
	if !exists {
		return fn(emptyTx{})
	}
	l, err := s.gate(ctx, lock.Shared)
	if err != nil {
		return err
	}
	defer l.Release()
	if err := s.verify(); err != nil {
		return err
	}
	return s.transact(false, fn)
}

// Update runs fn and commits what it wrote when it returns nil; the commit is durable when Update returns. The store is made
// where there is none. A function that writes nothing leaves the file untouched. When ctx ends while Update waits for its
// turn, nothing was written.
func (s *Store) Update(ctx context.Context, fn func(Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, dir := range []string{s.home.dir, s.home.locksDir()} {
		if err := files.MkdirAll(dir); err != nil {
			return homeError(dir, err)
		}
	}
	l, err := s.gate(ctx, lock.Exclusive)
	if err != nil {
		return err
	}
	defer l.Release()
	exists, err := s.wasCreated()
	if err != nil {
		return err
	}
	if !exists {
		if err := s.create(); err != nil {
			return err
		}
	}
	if err := s.verify(); err != nil {
		return err
	}
	if err := s.completeCreation(); err != nil {
		return err
	}
	return s.transact(true, fn)
}

func (s *Store) gate(ctx context.Context, mode lock.Mode) (*lock.Lock, error) {
	l, err := lock.Acquire(ctx, s.home.gateFile(), mode, s.wait, s.command)
	if errors.Is(err, fs.ErrNotExist) { // a home that was copied without its locks
		if err := files.MkdirAll(s.home.locksDir()); err != nil {
			return nil, homeError(s.home.locksDir(), err)
		}
		l, err = lock.Acquire(ctx, s.home.gateFile(), mode, s.wait, s.command)
	}
	switch {
	case err == nil:
		return l, nil
	case failure.Is(err, failure.LockBusy):
		e := failure.As(err)
		e.Hint = "wait until that process has ended, or end it, then repeat the command"
		return nil, e
	case ctx.Err() != nil:
		return nil, failure.Wrap(err, failure.Cancelled, "waiting for the store %s", s.home.StateFile())
	default:
		return nil, homeError(s.home.gateFile(), err)
	}
}

// wasCreated tells a store that was never made from one that was lost. The witnesses are read first: they are made after the
// file, so that one seen now means that the file was there before.
func (s *Store) wasCreated() (bool, error) {
	owner, mark := files.Exists(s.home.OwnerFile()), files.Exists(s.home.markFile())
	_, err := files.Lstat(s.home.StateFile())
	switch {
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, homeError(s.home.StateFile(), err)
	case owner:
		return false, s.invalidError("it is missing, but %s says that this home has a store", s.home.OwnerFile())
	case mark:
		return false, s.invalidError("it is missing, but %s says that this home has a store", s.home.markFile())
	default:
		return false, nil
	}
}

// create makes an empty store whole or not at all. The gate is held, so the name of the temporary file is ours.
func (s *Store) create() error {
	tmp := s.home.StateFile() + ".new"
	if err := files.Remove(tmp); err != nil {
		return homeError(tmp, err)
	}
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("make the store's id: %w", err)
	}
	crash.Point("store/before-create")
	db, err := s.openBolt(tmp, false)
	if err != nil {
		return err
	}
	err = guardBolt(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			for _, b := range []Bucket{Runs, Keys, Locks, Claims, Notes} {
				if _, err := tx.CreateBucket([]byte(b)); err != nil {
					return err
				}
			}
			return putFormat(tx, format{Format: formatName, ID: hex.EncodeToString(raw), Created: s.now().UTC()})
		})
	})
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = files.Remove(tmp)
		return s.writeError(err)
	}
	crash.Point("store/before-publish")
	if err := files.Rename(tmp, s.home.StateFile()); err != nil {
		return homeError(s.home.StateFile(), err)
	}
	crash.Point("store/after-publish")
	return nil
}

// completeCreation writes what a creation that was cut short left out: the owner file and the mark.
func (s *Store) completeCreation() error {
	if !files.Exists(s.home.OwnerFile()) {
		if err := files.Write(s.home.OwnerFile(), []byte(s.cachedID()+"\n")); err != nil {
			return homeError(s.home.OwnerFile(), err)
		}
		crash.Point("store/after-owner")
	}
	if !files.Exists(s.home.markFile()) {
		s.mu.Lock()
		txid := s.verified.txid
		s.mu.Unlock()
		if err := writeMark(s.home.markFile(), txid); err != nil {
			return homeError(s.home.markFile(), err)
		}
	}
	return nil
}

func (s *Store) openBolt(path string, readOnly bool) (db *bolt.DB, err error) {
	err = guardBolt(func() error {
		db, err = bolt.Open(path, files.FileMode, &bolt.Options{
			Timeout: boltWait, ReadOnly: readOnly, PageSize: pageSize, OpenFile: files.OpenForeign, NoStatistics: true,
		})
		return err
	})
	switch {
	case err == nil:
		return db, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, failure.New(failure.LockBusy, "%s is locked by another program, which bypasses laufwerk: end that program", path).
			WithHint("fuser -v %s", failure.Quote(path)).WithPaths(path)
	case errors.As(err, new(*boltDamage)):
		return nil, s.invalidError("%v", err)
	default:
		return nil, homeError(path, err)
	}
}

// transact runs fn in one bbolt transaction. The gate is held and the file was verified.
func (s *Store) transact(write bool, fn func(Tx) error) (err error) {
	db, err := s.openBolt(s.home.StateFile(), !write)
	if err != nil {
		return err
	}
	var btx *bolt.Tx
	open := true
	finish := func() {
		// A transaction whose rollback panics keeps bbolt's locks: closing would then wait for ever. The file is damaged, and
		// this process is about to say so and end.
		if open && guardBolt(func() error {
			if btx != nil {
				_ = btx.Rollback()
			}
			return nil
		}) == nil {
			_ = db.Close()
		}
		open = false
	}
	defer finish()
	if err := guardBolt(func() (err error) { btx, err = db.Begin(write); return err }); err != nil {
		return s.txError(err)
	}
	t := &boltTx{s: s, tx: btx}
	if err := fn(t); err != nil {
		return err
	}
	if t.err != nil {
		return t.err
	}
	if !write || !t.dirty {
		return nil
	}
	if err := t.close(); err != nil {
		return err
	}
	txid := uint64(btx.ID())
	crash.Point("store/before-commit")
	if err := s.commit(btx); err != nil {
		return s.txError(err)
	}
	crash.Point("store/after-commit")
	btx = nil
	finish()
	s.raiseMark(txid)
	return nil
}

// commit passes the fault points that bbolt, which writes by itself, has none of: one before it has written anything, one for
// the sync after the commit, which then has happened.
func (s *Store) commit(btx *bolt.Tx) error {
	if err := fault.Point("write", s.home.StateFile()); err != nil {
		return err
	}
	if err := guardBolt(btx.Commit); err != nil {
		return err
	}
	return fault.Point("sync", s.home.StateFile())
}

// raiseMark raises the mark. The commit has happened: a mark that could not be raised makes the damage check weaker, never
// wrong, and must not make the caller believe that nothing was written.
func (s *Store) raiseMark(txid uint64) {
	_ = writeMark(s.home.markFile(), txid)
	crash.Point("store/after-mark")
	st, err := files.Lstat(s.home.StateFile())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.verified = fileStamp{}
		return
	}
	s.verified = stampOf(st, txid)
}

func (s *Store) txError(err error) error {
	if errors.As(err, new(*boltDamage)) {
		return s.invalidError("%v", err)
	}
	return s.writeError(err)
}

func (s *Store) writeError(err error) error { return homeError(s.home.StateFile(), err) }

// invalidError refuses the store: what is wrong, and what can be done.
func (s *Store) invalidError(why string, args ...any) *failure.Error {
	return failure.New(failure.StoreInvalid, "the store %s cannot be used: %s. Nothing was changed, and it is not replaced, since it records what laufwerk has allocated. Restore it from a copy, or use another directory",
		s.home.StateFile(), strings.TrimSuffix(fmt.Sprintf(why, args...), ".")).
		WithHint("laufwerk help recovery\nexport LAUFWERK_HOME=/path/to/another/directory").
		WithPaths(s.home.StateFile())
}

// boltDamage is a panic inside bbolt, which is how it answers damage that it did not expect.
type boltDamage struct{ what any }

func (f *boltDamage) Error() string { return fmt.Sprintf("it is damaged: %v", f.what) }

// guardBolt calls into bbolt. Panics, and reads of the mapped file that the system refuses, become errors.
func guardBolt(call func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = &boltDamage{what: r}
		}
	}()
	return call()
}
