package script

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/sdk"
)

const bundleName = "bundle.js"

// entryName is the module that joins the user's module and the SDK.
const entryName = "entry"

const tsconfig = `{"compilerOptions":{"target":"ES2022","useDefineForClassFields":true}}`

// sources is where the bundler gets the project's files from. Paths are slash-separated and relative to the project root.
type sources interface {
	find(path string) (protocol.File, error) // the module that an import of the path means
	stat(path string) (protocol.File, error)
	read(path string) (protocol.File, error)
}

// makeBundle bundles a file of the project, with everything of the project that it imports, into one module. The SDK that it
// is made for, ours, is not put in yet.
func makeBundle(entry string, from sources) (protocol.Bundle, *protocol.Error) {
	r := &resolver{from: from}
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{entryName},
		// Nothing is read from here, but esbuild wants a directory.
		AbsWorkingDir:  "/",
		Bundle:         true,
		Write:          false,
		Outfile:        "/" + bundleName,
		Format:         api.FormatESModule,
		Platform:       api.PlatformNeutral,
		Target:         api.ES2022,
		Charset:        api.CharsetUTF8,
		Sourcemap:      api.SourceMapExternal,
		SourcesContent: api.SourcesContentExclude,
		LegalComments:  api.LegalCommentsNone,
		LogLevel:       api.LogLevelSilent,
		TreeShaking:    api.TreeShakingTrue,
		TsconfigRaw:    tsconfig,
		Plugins: []api.Plugin{{Name: "laufwerk", Setup: func(b api.PluginBuild) {
			b.OnResolve(api.OnResolveOptions{Filter: ".*"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
				return r.resolve(a, entry)
			})
			b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: nsSDK}, loadSDK(entry))
			b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: nsProject}, r.load)
		}}},
	})
	if len(result.Errors) > 0 {
		return protocol.Bundle{}, bundleError(result.Errors)
	}
	var out protocol.Bundle
	for _, f := range result.OutputFiles {
		if strings.HasSuffix(f.Path, ".map") {
			out.Map = string(f.Contents)
		} else {
			out.Code = mendLoops(string(f.Contents))
		}
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, sdk.Script)
	_, _ = io.WriteString(sum, out.Code)
	out.Digest = hex.EncodeToString(sum.Sum(nil))
	return out, nil
}

func loadSDK(entry string) func(api.OnLoadArgs) (api.OnLoadResult, error) {
	return func(a api.OnLoadArgs) (api.OnLoadResult, error) {
		if a.Path == entryName {
			code := fmt.Sprintf("import { attach } from %q;\nimport * as user from %q;\nattach(user);\n", sdk.Entry, entryImport)
			return api.OnLoadResult{Contents: &code, Loader: api.LoaderJS}, nil
		}
		code, err := moduleFacade(a.Path)
		return api.OnLoadResult{Contents: &code, Loader: api.LoaderJS}, err
	}
}

func (r *resolver) load(a api.OnLoadArgs) (api.OnLoadResult, error) {
	f, err := r.from.read(a.Path)
	if err != nil {
		return api.OnLoadResult{}, err
	}
	if f.Kind != "file" {
		return api.OnLoadResult{}, fmt.Errorf("%s cannot be imported: %s", a.Path, fileReason(f))
	}
	loader := api.LoaderJS
	switch path.Ext(a.Path) {
	case ".ts", ".mts", ".cts":
		loader = api.LoaderTS
	case ".tsx":
		loader = api.LoaderTSX
	case ".jsx":
		loader = api.LoaderJSX
	case ".json":
		loader = api.LoaderJSON
	case ".md", ".txt":
		loader = api.LoaderText
	}
	code := string(f.Content)
	return api.OnLoadResult{Contents: &code, Loader: loader}, nil
}

func fileReason(f protocol.File) string {
	if f.Reason != "" {
		return f.Reason
	}
	return "there is no such file"
}

// bundleError is the first error, with its place. The line itself is not shown: it may be of a file that is not the reader's.
func bundleError(errs []api.Message) *protocol.Error {
	e := errs[0]
	out := &protocol.Error{Class: "SyntaxError", Code: string(failure.ProjectInvalid), Message: e.Text}
	if l := e.Location; l != nil {
		if file, ok := strings.CutPrefix(l.File, nsProject+":"); ok {
			out.Frames = []string{fmt.Sprintf("%s:%d:%d", file, l.Line, l.Column+1)}
		}
	}
	if n := len(errs) - 1; n > 0 {
		out.Message += fmt.Sprintf(" (and %d more errors)", n)
	}
	return out
}
