package script

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"modernc.org/quickjs"

	"github.com/laufwerk/laufwerk/sdk"
)

// What is made from the SDK (sdk/built) and from the prelude before a release, since making it takes longer than all the rest of
// reading a config: the SDK as one script, what its modules export, and both scripts in the engine's bytecode. `make
// update-sdk` makes it anew; TestBuiltIsCurrent holds that it is what the sources say.
//
// Bytecode is only as good as the engine that made it: its version, the atoms and the opcodes. Those are the same on all our
// platforms, which TestBytecodeFitsAllPlatforms holds. It is never taken from anywhere else.
//
//go:embed built/prelude.bytecode
var preludeBytecode []byte

// sdkSymbol is where the script leaves the SDK's modules, by name.
const sdkSymbol = `globalThis[Symbol.for("laufwerk.sdk")]`

// preludeScript leaves the prelude, a function, in a global variable that the boot script takes away.
func preludeScript() string { return "globalThis.__prelude = " + prelude }

// moduleFacade is the source of a module of the SDK as a bundle has it: names for what the SDK's script left.
func moduleFacade(module string) (string, error) {
	var exports map[string][]string
	if err := json.Unmarshal(sdk.Exports, &exports); err != nil {
		return "", err
	}
	names, ok := exports[module]
	if !ok {
		return "", fmt.Errorf("%s is not a module of this build", module)
	}
	if len(names) == 0 {
		return "export {};\n", nil
	}
	return fmt.Sprintf("export const { %s } = %s[%q];\n", strings.Join(names, ", "), sdkSymbol, module), nil
}

// evalBuilt evaluates a script that there is bytecode of, from its source if the engine does not take the bytecode.
func evalBuilt(vm *quickjs.VM, bytecode []byte, source string) error {
	v, err := vm.EvalBytecodeValue(bytecode)
	if err != nil {
		v, err = vm.EvalValue(source, quickjs.EvalGlobal)
	}
	if err != nil {
		return err
	}
	v.Free()
	return nil
}

// evalSDK evaluates the SDK that a bundle was made with. That may be another one than ours: a run keeps the code that it
// started with.
func evalSDK(vm *quickjs.VM, source string) error {
	switch source {
	case "": // before minor version 1 the SDK was part of the code
		return nil
	case sdk.Script:
		return evalBuilt(vm, sdk.Bytecode, source)
	}
	v, err := vm.EvalValue(source, quickjs.EvalGlobal)
	if err == nil {
		v.Free()
	}
	return err
}
