// Command millwright-standin answers for rpm-ostree, bootc, systemctl and
// update-ca-trust on a simulated machine, by the name under which it is called or by
// its first argument.
package main

import (
	"os"

	"millwright.io/millwright/internal/app/standin"
)

func main() { os.Exit(standin.Run(os.Args[0], os.Args[1:])) }
