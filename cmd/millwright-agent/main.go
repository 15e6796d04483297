// Command millwright-agent keeps one node's disk as its MachineConfig says.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"millwright.io/millwright/internal/app/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(agent.ExitCode(agent.Command().ExecuteContext(ctx)))
}
