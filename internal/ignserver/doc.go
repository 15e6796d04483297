// Package ignserver is the HTTP edge of first boots, OpenShift's machine config
// server: a machine's stub asks it for the config of a pool and gets the rendered
// config with the files that turn a machine into a node of this cluster. It decides
// which version of Ignition to speak and which config a pool's new machines get;
// it never renders, and it writes nothing.
//
// The files it adds hold a token that can ask for certificates. So it answers only
// to the pool's own token, which the stub carries, unless anonymous access is
// switched on.
//
//	s := ignserver.New(ignserver.Config{Source: src})
//	http.Handle("/", s)
package ignserver
