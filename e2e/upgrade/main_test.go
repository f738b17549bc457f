package upgrade_test

import (
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m, nil) }
