package sdk

import (
	"slices"
	"strings"
	"testing"
)

func TestEveryPublicModuleIsServedAndDeclared(t *testing.T) {
	modules := Modules()
	if !slices.Contains(modules, "@laufwerk/sdk") || !slices.Contains(modules, "@laufwerk/execution") {
		t.Errorf("the public modules are %s", strings.Join(modules, ", "))
	}
	for _, m := range modules {
		if _, ok := Source(m); !ok {
			t.Errorf("%s is not served", m)
		}
		if !strings.Contains(Declarations(), `declare module "`+m+`"`) {
			t.Errorf("%s is not declared: run sdk/update.sh", m)
		}
	}
	if strings.Contains(Declarations(), internal) {
		t.Error("the declarations show an internal module")
	}
	if _, ok := Source("../sdk"); ok {
		t.Error("a path was taken for a module")
	}
}
