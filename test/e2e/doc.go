// Package e2e proves the product from outside: it starts worlds with the built
// binaries and types what a person types, kubectl, oc, jq and openssl through
// a shell. It reads nothing of the product but what a user can see: output,
// exit codes, the API, files of the state directory, the audit log.
//
// It must never sleep for a fixed time, never leave a process, a port or a
// directory behind, and never look away from a failure by trying again.
//
// MILLWRIGHT_BIN names the folder of the binaries; without it they are taken
// from bin/ or built. MILLWRIGHT_E2E=full runs the long forms.
package e2e
