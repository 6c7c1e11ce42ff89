package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"headstart/rpc"
)

// certFiles are the files of both processes' certificate in dir.
func certFiles(dir string) rpc.TLSOptions {
	return rpc.TLSOptions{CAPath: filepath.Join(dir, "cert.pem"), CertPath: filepath.Join(dir, "cert.pem"), KeyPath: filepath.Join(dir, "key.pem")}
}

// writeCerts makes a certificate that has signed itself.
func writeCerts(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "peerhop"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	o := certFiles(dir)
	return errors.Join(
		os.WriteFile(o.CertPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600),
		os.WriteFile(o.KeyPath, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600))
}

// bareTLS is mutual TLS as crypto/tls does it by itself.
func bareTLS(dir string) (*tls.Config, error) {
	o := certFiles(dir)
	cert, err := tls.LoadX509KeyPair(o.CertPath, o.KeyPath)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert.Leaf)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: roots, InsecureSkipVerify: true, // it has no name; the hop checks the authority alone as well
	}, nil
}

// hopTLS is the TLS of nodes.
func hopTLS(dir string) *rpc.TLS {
	t := rpc.NewTLS(certFiles(dir))
	t.SetEnabled(true)
	return t
}
