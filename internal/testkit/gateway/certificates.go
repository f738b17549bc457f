package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"time"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// authority signs certificates; its own is PEM.
type authority struct {
	pem         []byte
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := template(name)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), certificate: certificate, key: key}, err
}

// template is valid for as long as those of OpenShell are.
func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(4096, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

// sign makes a certificate for hosts, which may be addresses, or with none for a client.
func (a *authority) sign(of *x509.Certificate, hosts ...string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	of.KeyUsage, of.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		of.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		if ip := net.ParseIP(host); ip != nil {
			of.IPAddresses = append(of.IPAddresses, ip)
		} else {
			of.DNSNames = append(of.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, of, a.certificate, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func newIdentity(t testkit.T) *identity {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("make certificates: %v", err)
		}
	}
	a, err := newAuthority("openshell-ca")
	check(err)
	i := &identity{authority: a.pem, pool: x509.NewCertPool()}
	i.pool.AddCert(a.certificate)
	i.server, err = a.sign(template("openshell-server"), "openshell", "localhost", "host.openshell.internal", "127.0.0.1", "::1")
	check(err)
	user := template("openshell-client")
	user.Subject.OrganizationalUnit = []string{"openshell-user"}
	pair, err := a.sign(user)
	check(err)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	check(err)
	i.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	i.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return i
}

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
