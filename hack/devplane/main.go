// Command devplane makes sure that the development control plane is built and
// prints its path. It builds nothing itself; internal/controlplane does, once,
// into the cache.
//
//	go run ./hack/devplane
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"millwright.io/millwright/internal/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	started := time.Now()
	binary, err := controlplane.Ensure(ctx, "", os.Stderr)
	if err != nil {
		fmt.Fprintf(os.Stderr, "devplane: %v\n", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "control plane ready after %s\n", time.Since(started).Round(100*time.Millisecond))
	fmt.Println(binary)
}
