// Package firstboot decides what a new machine of a pool boots into: the stub that
// its cloud hands it, which of the pool's configs it gets, and the Ignition config
// that the config server answers with. It fetches nothing and knows no HTTP.
//
//	stub, err := firstboot.Stub(firstboot.StubInput{Host: "api-int.example.com", Pool: "worker", CA: pem, Token: token})
//	name := firstboot.Select(pool)
//	body, err := firstboot.Build(firstboot.Served{Config: mc, Kubeconfig: kubeconfig, Version: "3.5.0"})
package firstboot
