// Laufwerk runs durable coding-agent workflows in isolated places.
package main

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/app"
	"github.com/laufwerk/laufwerk/internal/system"
)

func main() { system.Exit(app.Main(context.Background(), system.FromOS())) }
