// Command millwright-ignition serves first-boot configs to new machines.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"millwright.io/millwright/internal/app/ignition"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(ignition.ExitCode(ignition.Command().ExecuteContext(ctx)))
}
