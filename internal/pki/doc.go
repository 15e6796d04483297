// Package pki makes and renews the certificates that Millwright's own parts
// show each other: the development control plane, the simulators, the webhook
// and the config server.
//
// It decides nothing about who may have a certificate; callers name subject,
// names and lifetime. Everything is ECDSA P-256 and stays in memory: the
// package never reads or writes a file, never dials, and never logs a key.
//
//	ca, err := pki.NewCA("millwright", 10*365*24*time.Hour, clock.RealClock{})
//	cert, key, err := ca.Issue(pki.Leaf{CommonName: "webhook", Server: true, DNSNames: []string{"webhook.svc"}})
package pki
