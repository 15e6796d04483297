// Command millwright is the command line; it also answers as kubectl millwright.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"millwright.io/millwright/internal/app/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Run(ctx))
}
