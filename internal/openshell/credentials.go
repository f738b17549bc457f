package openshell

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// identity is the user's certificate and key, and whom the user trusts to be the gateway.
type identity struct {
	own         tls.Certificate
	trusted     *x509.CertPool
	fingerprint string
}

func (i identity) config(host string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: i.trusted, Certificates: []tls.Certificate{i.own}}
}

// readCredentials reads ca.crt, tls.crt and tls.key. They have to be there, the user's own, the key nobody else's to read, all
// in date, and a pair.
func readCredentials(alias, dir string) (identity, error) {
	fail := func(err error, path, format string, args ...any) (identity, error) {
		return identity{}, failure.New(failure.NotReady, "cannot connect to the OpenShell gateway %q: "+format, append([]any{alias}, args...)...).
			WithHint("%s   # creates its certificates again", registerCommand(alias)).WithPaths(path).WithCause(err)
	}
	if err := ownFolder(dir, 0o022); errors.Is(err, fs.ErrNotExist) {
		return fail(nil, dir, "it has no client certificates, the folder %s is missing", dir)
	} else if err != nil {
		return identity{}, err
	}
	text := map[string][]byte{}
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		path, forbidden := filepath.Join(dir, name), fs.FileMode(0o022)
		if name == "tls.key" {
			forbidden = 0o077
		}
		b, err := ownFile(path, forbidden)
		if errors.Is(err, fs.ErrNotExist) {
			return fail(nil, path, "%s is missing", path)
		}
		if err != nil {
			return identity{}, err
		}
		text[name] = b
	}
	ca, crt := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "tls.crt")
	own, err := tls.X509KeyPair(text["tls.crt"], text["tls.key"])
	if err != nil {
		return fail(err, crt, "tls.crt and tls.key in %s do not belong together", dir)
	}
	if err := inDate(own.Leaf); err != nil {
		return fail(err, crt, "the client certificate %s is out of date", crt)
	}
	out := identity{own: own, trusted: x509.NewCertPool()}
	sum := sha256.New()
	rest, n := text["ca.crt"], 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fail(err, ca, "the authority's certificate %s cannot be read", ca)
		}
		if err := inDate(c); err != nil {
			return fail(err, ca, "the authority's certificate %s is out of date", ca)
		}
		out.trusted.AddCert(c)
		_, _ = sum.Write(c.Raw)
		n++
	}
	if n == 0 {
		return fail(nil, ca, "%s has no certificate", ca)
	}
	out.fingerprint = hex.EncodeToString(sum.Sum(nil))
	return out, nil
}

// inDate says why a certificate does not hold today: verified against itself, only its dates can fail.
func inDate(c *x509.Certificate) error {
	roots := x509.NewCertPool()
	roots.AddCert(c)
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return err
	}
	return nil
}

// ownFolder says why a folder is not the user's own; one that is missing is fs.ErrNotExist. Links lead elsewhere, and are none.
func ownFolder(path string, forbidden fs.FileMode) error {
	info, err := files.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fs.ErrNotExist
	case err != nil:
		return failure.Wrap(err, failure.NotReady, "cannot inspect %s", path)
	case !info.IsDir():
		return failure.New(failure.NotReady, "%s is not a directory: a gateway's registration may not have files or links in place of directories", path).
			WithHint("ls -ld %s", failure.Quote(path)).WithPaths(path)
	}
	return checkPrivate(path, info, forbidden)
}

// maxFile bounds a registration's files, in bytes.
const maxFile = 1 << 20

// ownFile is the content of a file of the user's own; one that is missing is fs.ErrNotExist.
func ownFile(path string, forbidden fs.FileMode) ([]byte, error) {
	fail := func(err error, format string, args ...any) error {
		return failure.New(failure.NotReady, format, args...).WithHint("ls -l %s", failure.Quote(path)).WithPaths(path).WithCause(err)
	}
	if link, err := files.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	} else if err == nil && !link.Mode().IsRegular() {
		return nil, fail(nil, "%s is not a regular file: a gateway's registration may not have links or special files", path)
	}
	f, err := files.OpenFile(path, 0, 0)
	if err != nil {
		return nil, fail(err, "cannot read %s", path)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fail(err, "cannot read %s", path)
	}
	if err := checkPrivate(path, info, forbidden); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fail(err, "cannot read %s", path)
	case len(b) > maxFile:
		return nil, fail(nil, "%s is larger than 1 MiB, which no file of a registration is", path)
	}
	return b, nil
}

// checkPrivate says why what belongs to a registration could be another user's work, or known to one.
func checkPrivate(path string, info fs.FileInfo, forbidden fs.FileMode) error {
	if owner, ok := files.Owner(info); ok && owner != system.UID() {
		return failure.New(failure.NotReady, "%s belongs to the user %d, and not to the user %d that laufwerk runs as", path, owner, system.UID()).
			WithHint("ls -ld %s", failure.Quote(path)).WithPaths(path)
	}
	if has := info.Mode().Perm() & forbidden; has != 0 {
		what := "other users can write it"
		if has&0o022 == 0 {
			what = "other users can read it"
		}
		return failure.New(failure.NotReady, "the mode of %s is %04o: %s", path, info.Mode().Perm(), what).
			WithHint("chmod go-rwx %s", failure.Quote(path)).WithPaths(path)
	}
	return nil
}
