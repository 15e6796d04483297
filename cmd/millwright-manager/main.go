// Command millwright-manager runs controllers and admission.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"millwright.io/millwright/internal/app/manager"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(manager.ExitCode(manager.Command().ExecuteContext(ctx)))
}
