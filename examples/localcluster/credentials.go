package localcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// credentials is what a client must know and what must survive a restart for old clients to go on.
type credentials struct {
	ca    []byte // PEM, what clients trust
	cert  []byte // PEM, what the server shows
	key   []byte // PEM
	token string // the bearer token of the kubeconfig's user
}

// loadOrCreateCredentials reads dir, or fills it when it holds no credentials yet.
func loadOrCreateCredentials(dir string) (*credentials, error) {
	var (
		creds  credentials
		token  []byte
		absent int
	)
	files := []struct {
		name string
		data *[]byte
	}{{"ca.crt", &creds.ca}, {"server.crt", &creds.cert}, {"server.key", &creds.key}, {"token", &token}}
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file.name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			absent++
		case err != nil:
			return nil, err
		}
		*file.data = data
	}
	creds.token = string(token)
	if absent == 0 {
		return &creds, nil
	}
	if absent < len(files) {
		return nil, fmt.Errorf("%s holds only some of the credentials; remove it to get new ones", dir)
	}

	if err := creds.generate(); err != nil {
		return nil, err
	}
	token = []byte(creds.token)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(dir, file.name), *file.data, 0o600); err != nil {
			return nil, err
		}
	}
	return &creds, nil
}

func (c *credentials) generate() error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	// A day back for clocks that differ, ten years ahead so that a kept directory does not expire.
	notBefore, notAfter := time.Now().AddDate(0, 0, -1), time.Now().AddDate(10, 0, 0)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localcluster CA"},
		NotBefore: notBefore, NotAfter: notAfter,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	// The CA's key is dropped: nothing else is ever signed.
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localcluster"},
		NotBefore: notBefore, NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, serverKey.Public(), caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(serverKey)
	if err != nil {
		return err
	}
	c.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	c.cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serverDER})
	c.key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	c.token = newToken()
	return nil
}

func newToken() string {
	token := make([]byte, 32)
	_, _ = rand.Read(token) // never fails, by its documentation
	return hex.EncodeToString(token)
}
