package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestHardSources copies repositories of every shape that people have. The copy's repository says of the work tree what the
// source's says, or there is none and a reason.
func TestHardSources(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, src string) string // changes a busy source; returns the one to copy, "" for the same
		why  string                                // of a copy without a repository
	}{
		"as it is":       {nil, ""},
		"index v4":       {git1("update-index", "--index-version", "4"), ""},
		"split index":    {git1("update-index", "--split-index"), ""},
		"packed refs":    {git1("pack-refs", "--all"), ""},
		"packed objects": {git1("gc", "-q"), ""},
		"detached HEAD":  {git1("checkout", "-q", "--detach"), ""},
		"replace refs": {func(t *testing.T, src string) string {
			run(t, src, "git", "replace", "HEAD:same", "HEAD:same2")
			run(t, src, "git", "replace", "HEAD", "HEAD~1")
			t.Setenv("GIT_NO_REPLACE_OBJECTS", "1") // what the test asks of the source
			return ""
		}, ""},
		"grafts": {func(t *testing.T, src string) string {
			write(t, src+"/.git/info/grafts", said(t, src, "rev-parse", "HEAD")+"\n")
			run(t, src, "git", "config", "advice.graftFileDeprecated", "false") // the test's own questions
			return ""
		}, ""},
		"intent to add": {git1("add", "-N", "untracked"), ""},
		"skip-worktree": {func(t *testing.T, src string) string {
			run(t, src, "git", "update-index", "--skip-worktree", "same", "dir/deep/same")
			must(t, os.Remove(src+"/same"))
			return ""
		}, ""},
		"a sparse checkout": {func(t *testing.T, src string) string {
			run(t, src, "git", "reset", "-q", "--hard")
			run(t, src, "git", "sparse-checkout", "set", "--cone", "--sparse-index", "nothing")
			return ""
		}, ""},
		"conflicts": {func(t *testing.T, src string) string {
			run(t, src, "git", "reset", "-q", "--hard")
			run(t, src, "git", "checkout", "-qb", "theirs")
			write(t, src+"/both", "theirs")
			run(t, src, "git", "commit", "-qam", "theirs")
			run(t, src, "git", "checkout", "-q", "-")
			write(t, src+"/both", "ours")
			run(t, src, "git", "commit", "-qam", "ours")
			if out, err := exec.Command("git", "-C", src, "merge", "-q", "theirs").CombinedOutput(); err == nil {
				t.Fatalf("no conflict: %s", out)
			}
			return ""
		}, ""},
		"names that fold": {func(t *testing.T, src string) string {
			write(t, src+"/README", "one")
			write(t, src+"/readme", "two")
			run(t, src, "git", "-c", "core.ignorecase=false", "add", "README", "readme")
			return ""
		}, ""},
		"a name of 3,900 bytes": {func(t *testing.T, src string) string {
			deep := strings.Repeat(strings.Repeat("d", 240)+"/", 14)
			write(t, src+"/"+deep+"f", "x")
			run(t, src, "git", "add", ".")
			return ""
		}, ""},
		"a linked worktree": {func(t *testing.T, src string) string {
			linked := filepath.Join(t.TempDir(), "linked")
			run(t, src, "git", "worktree", "add", "-q", linked, "other")
			write(t, linked+"/modified", "three")
			return linked
		}, ""},
		"alternates": {func(t *testing.T, src string) string {
			clone := filepath.Join(t.TempDir(), "clone")
			run(t, src, "git", "clone", "-q", "--shared", src, clone)
			return clone
		}, ""},
		"a shallow clone": {func(t *testing.T, src string) string {
			clone := filepath.Join(t.TempDir(), "clone")
			run(t, src, "git", "clone", "-q", "--depth=1", "file://"+src, clone)
			return clone
		}, ""},
		".git is a link": {func(t *testing.T, src string) string {
			elsewhere := filepath.Join(t.TempDir(), "repository")
			must(t, os.Rename(src+"/.git", elsewhere))
			must(t, os.Symlink(elsewhere, src+"/.git"))
			return ""
		}, ""},
		"SHA-256": {func(t *testing.T, _ string) string {
			src := t.TempDir()
			run(t, src, "git", "init", "-q", "--object-format=sha256")
			write(t, src+"/f", "x")
			run(t, src, "git", "add", ".")
			return src
		}, "sha256"},
		"a partial clone": {func(t *testing.T, src string) string {
			clone := filepath.Join(t.TempDir(), "clone")
			run(t, src, "git", "config", "uploadpack.allowFilter", "true")
			run(t, src, "git", "clone", "-q", "--filter=blob:none", "--sparse", "file://"+src, clone)
			trap := "touch " + filepath.Join(clone, ".git", "TRAP") + ";"
			run(t, clone, "git", "config", "remote.origin.uploadpack", trap)
			run(t, clone, "git", "config", "core.sshCommand", trap)
			return clone
		}, "git cannot read"},
	} {
		t.Run(name, func(t *testing.T) {
			src := busySource(t)
			if c.make != nil {
				if other := c.make(t, src); other != "" {
					src = other
				}
			}
			dest, o := copyOf(t, src)
			if !strings.Contains(o.NoRepository, c.why) || (c.why == "") != (o.NoRepository == "") {
				t.Fatalf("the reason for no repository: %q", o.NoRepository)
			}
			if trapped, _ := filepath.Glob(src + "/.git/TRAP"); trapped != nil {
				t.Error("something of the source's configuration was run")
			}
			if c.why != "" {
				if _, err := os.Lstat(dest + "/.git"); err == nil {
					t.Error("half a repository stays")
				}
				return
			}
			for _, args := range [][]string{{"status", "--porcelain"}, {"rev-parse", "HEAD"}, {"ls-files", "-s"}, {"ls-files", "-v"}, {"diff", "--cached"}} {
				if here, there := said(t, dest, args...), said(t, src, args...); here != there {
					t.Errorf("git %v\nin the copy:   %q\nin the source: %q", args, here, there)
				}
			}
			said(t, dest, "fsck", "--strict")
		})
	}
}

func git1(args ...string) func(*testing.T, string) string {
	return func(t *testing.T, src string) string {
		run(t, src, append([]string{"git"}, args...)...)
		return ""
	}
}

// TestConfigurationOfAHostileSource: nothing that a repository's configuration can name is run, read or written.
func TestConfigurationOfAHostileSource(t *testing.T) {
	for name, lines := range map[string]string{
		"worktree elsewhere": "[core]\n\tworktree = OUTSIDE\n",
		"bare":               "[core]\n\tbare = true\n",
		"include":            "[include]\n\tpath = OUTSIDE/config\n",
		"excludes":           "[core]\n\texcludesFile = OUTSIDE/config\n\tattributesFile = OUTSIDE/config\n",
		"programs":           "[core]\n\tfsmonitor = touch TRAP\n\tsshCommand = touch TRAP\n\tpager = touch TRAP\n\teditor = touch TRAP\n\talternateRefsCommand = touch TRAP\n\tgitProxy = touch TRAP\n[pager]\n\tls-files = touch TRAP\n[alias]\n\tls-files = !touch TRAP\n[gpg]\n\tprogram = touch TRAP\n",
		"promisor":           "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tpartialClone = evil\n[remote \"evil\"]\n\turl = ext::sh -c \"touch TRAP\"\n\tpromisor = true\n[protocol]\n\tallow = always\n[protocol \"ext\"]\n\tallow = always\n",
	} {
		t.Run(name, func(t *testing.T) {
			src := busySource(t)
			outside := t.TempDir()
			trap := filepath.Join(outside, "trap")
			write(t, outside+"/config", "[core]\n\tfsmonitor = touch "+trap+"\n")
			write(t, outside+"/foreign", "x")
			id := said(t, src, "rev-parse", "HEAD:same")
			must(t, os.Remove(src+"/.git/objects/"+id[:2]+"/"+id[2:])) // what a promisor would be asked for
			config, err := os.ReadFile(src + "/.git/config")
			must(t, err)
			write(t, src+"/.git/config", string(config)+strings.NewReplacer("OUTSIDE", outside, "TRAP", trap).Replace(lines))
			dest := filepath.Join(t.TempDir(), "copy")
			o, err := Copy(t.Context(), CopyRequest{Source: src, Dest: dest})
			if _, trapped := os.Lstat(trap); trapped == nil {
				t.Error("a program of the source's configuration was run")
			}
			if err != nil {
				t.Errorf("refused: %v", err)
			} else {
				if got := paths(o.Base); slices.Contains(got, "foreign") || !slices.Contains(got, "same") || slices.Contains(got, "ignored") {
					t.Errorf("the copy has %q", got)
				}
			}
		})
	}
}

// TestBareShapedSource: a directory that looks like a repository is content, wherever it lies.
func TestBareShapedSource(t *testing.T) {
	needGit(t)
	top := t.TempDir()
	gitInit(t, top)
	bare := top + "/fixtures/bare"
	run(t, top, "git", "init", "-q", "--bare", bare)
	trap := filepath.Join(t.TempDir(), "trap")
	run(t, bare, "git", "config", "core.fsmonitor", "touch "+trap)
	run(t, bare, "git", "config", "core.worktree", top)
	_, o := copyOf(t, top)
	if got := paths(o.Base); !slices.Contains(got, "fixtures/bare/HEAD") && !slices.Contains(got, "fixtures") {
		t.Errorf("%q", got)
	}
	dest := filepath.Join(t.TempDir(), "copy")
	if o, err := Copy(t.Context(), CopyRequest{Source: bare, Dest: dest}); err != nil {
		t.Errorf("as the source itself: %v", err)
	} else if got := paths(o.Base); !slices.Contains(got, "HEAD") || !slices.Contains(got, "config") {
		t.Errorf("as the source itself: %q", got)
	}
	if _, err := os.Lstat(trap); err == nil {
		t.Error("the configuration of a bare-shaped directory was used")
	}
}

func TestSubmodulesAreListedAndNotCopied(t *testing.T) {
	library, src := busySource(t), busySource(t)
	run(t, library, "git", "reset", "-q", "--hard")
	run(t, src, "git", "-c", "protocol.file.allow=always", "submodule", "add", "-q", library, "lib/mod")
	run(t, src, "git", "commit", "-qm", "submodule", "--", ".gitmodules", "lib/mod")
	trap := filepath.Join(t.TempDir(), "trap")
	run(t, src+"/lib/mod", "git", "config", "core.fsmonitor", "touch "+trap)
	dest, o := copyOf(t, src)
	if len(o.Nested) != 1 || string(o.Nested[0]) != "lib/mod" {
		t.Errorf("listed: %q", o.Nested)
	}
	if names, err := os.ReadDir(dest + "/lib/mod"); err != nil || len(names) != 0 {
		t.Errorf("its directory: %v, %v", names, err)
	}
	if _, err := os.Lstat(trap); err == nil {
		t.Error("the submodule's configuration was used")
	}
	if here := said(t, dest, "status", "--porcelain"); strings.Contains(here, "lib/mod") {
		t.Errorf("it shows as changed: %s", here)
	}
}

// TestLargeFilesOfLFS: what lies in the work tree is copied, pointers as pointers, contents as contents.
func TestLargeFilesOfLFS(t *testing.T) {
	src := busySource(t)
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	write(t, src+"/fetched.bin", pointer)
	write(t, src+"/pointer.bin", pointer)
	write(t, src+"/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
	run(t, src, "git", "add", "fetched.bin", "pointer.bin", ".gitattributes")
	run(t, src, "git", "commit", "-qm", "large")
	write(t, src+"/fetched.bin", "the content itself")
	for _, key := range []string{"clean", "smudge", "process"} {
		run(t, src, "git", "config", "filter.lfs."+key, "touch "+src+"/TRAP; false")
	}
	run(t, src, "git", "config", "filter.lfs.required", "true")
	dest, o := copyOf(t, src)
	for name, want := range map[string]string{"fetched.bin": "the content itself", "pointer.bin": pointer} {
		if got, err := os.ReadFile(dest + "/" + name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := os.Lstat(src + "/TRAP"); err == nil || o.NoRepository != "" {
		t.Errorf("a filter ran: %t; no repository: %s", err == nil, o.NoRepository)
	}
}

func TestSecretLookingFilesAreListedAndLeftOut(t *testing.T) {
	needGit(t)
	src := t.TempDir()
	gitInit(t, src)
	left := []string{
		".env", ".env.local", ".env.production", "prod.env", ".envrc", ".npmrc", "sub/.npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials", ".dockercfg",
		".docker/config.json", ".aws/credentials", ".aws/config", ".azure/accessTokens.json", ".config/gcloud/application_default_credentials.json", ".config/gh/hosts.yml",
		".kube/config", "kubeconfig", "dev.kubeconfig", "kubeconfig.yaml", ".ssh/id_ed25519", "id_rsa", "deploy.pem", "server.key", "cert.p12", "cert.pfx", "app.jks", "release.keystore",
		"putty.ppk", "vault.kdbx", ".vault-token", ".pgpass", ".my.cnf", ".htpasswd", "credentials.json", "service-account.json", "client_secret_1.apps.googleusercontent.com.json",
		"terraform.tfstate", "terraform.tfstate.backup", "prod.auto.tfvars", ".terraformrc", ".terraform.d/credentials.tfrc.json", "secrets.yml", "secrets.yaml", "secrets.json", ".secrets",
		".codex/auth.json", ".claude/.credentials.json", ".gnupg/private-keys-v1.d/x", ".m2/settings-security.xml", ".cargo/credentials.toml", ".gem/credentials", ".s3cfg", ".boto", "age.agekey",
		"ID_RSA", "Server.KEY",
	}
	kept := []string{".env.example", ".env.sample", "environment.ts", "keyboard.ts", "sub/config.json", "public.pub", "id_rsa.pub", ".ssh/id_ed25519.pub", "secrets.go", "authentication.json", "key.go"}
	for _, name := range append(slices.Clone(left), kept...) {
		write(t, filepath.Join(src, name), "x")
	}
	_, o := copyOf(t, src)
	got := paths(o.Base)
	listed := map[string]bool{}
	for _, s := range o.Skipped {
		listed[string(s.Path)] = s.Secret
	}
	for _, name := range left {
		if slices.Contains(got, name) || !listed[name] {
			t.Errorf("%s is copied: %t, listed: %t", name, slices.Contains(got, name), listed[name])
		}
	}
	for _, name := range kept {
		if !slices.Contains(got, name) {
			t.Errorf("%s is left out", name)
		}
	}
}
