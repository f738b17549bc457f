package sdk

import (
	"strings"
	"testing"
)

func TestEveryPublicModuleIsServedAndDeclared(t *testing.T) {
	modules := Modules()
	if len(modules) != 11 {
		t.Errorf("there are %d public modules: %s", len(modules), strings.Join(modules, ", "))
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
