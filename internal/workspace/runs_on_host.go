package workspace

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// hostRule names paths that make code run on the host of whoever checks out, opens, builds or tests the tree, in lower case.
type hostRule struct {
	why   string
	names string // of files at any depth, space separated; one "*" stands for anything
	dirs  string // everything in a directory of this name at any depth, and what has the name itself
}

func hostRules() []hostRule {
	return []hostRule{
		{why: "CI configuration", names: ".gitlab-ci.yml .gitlab-ci.yaml .travis.yml appveyor.yml .appveyor.yml jenkinsfile jenkinsfile.* azure-pipelines.yml azure-pipelines.yaml bitbucket-pipelines.yml .drone.yml .cirrus.yml .woodpecker.yml cloudbuild.yaml cloudbuild.yml buildspec.yml codemagic.yaml action.yml action.yaml dagger.json",
			dirs: ".github .gitlab .circleci .buildkite .forgejo .gitea .woodpecker .teamcity .ci"},
		{why: "environment file", names: ".env .env.* *.env .envrc"},
		{why: "tool versions", names: ".tool-versions mise.toml .mise.toml mise.*.toml .mise.*.toml .nvmrc .node-version .python-version .ruby-version .java-version .go-version .sdkmanrc .asdfrc rust-toolchain rust-toolchain.toml global.json .bazelversion .bazeliskrc .terraform-version volta.json devbox.json devenv.nix flake.nix flake.lock shell.nix default.nix",
			dirs: ".mise .asdf"},
		{why: "editor or container settings", names: ".editorconfig.js *.code-workspace devcontainer.json .devcontainer.json .vimrc .nvimrc .exrc .nvim.lua .dir-locals.el .lvimrc .gdbinit .lldbinit .clangd .luarc.json *.desktop *.sublime-project",
			dirs: ".vscode .idea .fleet .zed .devcontainer .nvim .vim .cursor .theia .settings .helix"},
		{why: "agent instructions", names: "agents.md agents.override.md claude.md claude.local.md gemini.md .mcp.json .cursorrules .windsurfrules .clinerules copilot-instructions.md .aider.conf.yml llms.txt skill.md",
			dirs: ".codex .claude .agents .gemini .continue .windsurf .clinerules .opencode .roo .amp"},
		{why: "hooks", names: ".pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml lefthook.yml lefthook.yaml .lefthook.yml .lefthook.toml lefthook.toml .huskyrc .huskyrc.* .lintstagedrc .lintstagedrc.* lint-staged.config.* .overcommit.yml commitlint.config.* .commitlintrc .commitlintrc.* .simple-git-hooks.* captainhook.json",
			dirs: ".husky .githooks git-hooks hooks .lefthook"},
		{why: "git configuration", names: ".gitattributes .gitmodules .gitconfig .gitignore .lfsconfig .git .mailmap", dirs: ".git"},
		{why: "package scripts and dependencies", names: "package.json package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml pnpm-workspace.yaml .pnpmfile.cjs bun.lock bun.lockb bunfig.toml deno.json deno.jsonc .npmrc .yarnrc .yarnrc.yml .pnp.cjs .pnp.loader.mjs composer.json composer.lock gemfile gemfile.lock *.gemspec requirements*.txt pipfile pipfile.lock poetry.lock uv.lock uv.toml pdm.lock cargo.toml cargo.lock go.mod go.sum go.work go.work.sum mix.exs mix.lock pubspec.yaml package.swift *.cabal stack.yaml project.clj deps.edn dune-project *.opam *.nuspec nuget.config packages.config conanfile.py conanfile.txt vcpkg.json pip.conf .pypirc",
			dirs: ".yarn .cargo .bundle"},
		{why: "build script", names: "makefile makefile.* gnumakefile *.mk *.mak justfile .justfile *.just taskfile.yml taskfile.yaml taskfile.dist.yml rakefile *.rake build.rs build.sh build.zig build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties gradlew gradlew.bat mvnw mvnw.cmd pom.xml build.xml ivy.xml build.sbt cmakelists.txt *.cmake cmakepresets.json configure configure.ac configure.in *.m4 autogen.sh bootstrap bootstrap.sh meson.build meson_options.txt sconstruct sconscript wscript snakefile rebar.config .buckconfig binding.gyp *.gyp *.gypi build build.bazel workspace workspace.bazel module.bazel *.bzl .bazelrc tiltfile earthfile magefile.go build.ninja setup.py setup.cfg pyproject.toml noxfile.py tasks.py fabfile.py dodo.py gulpfile.* gruntfile.* webpack.config.* webpack.*.js rollup.config.* vite.config.* esbuild.config.* tsup.config.* next.config.* nuxt.config.* svelte.config.* astro.config.* babel.config.* .babelrc .babelrc.* postcss.config.* tailwind.config.* turbo.json nx.json lerna.json project.json angular.json metro.config.js snapcraft.yaml *.csproj *.vbproj *.fsproj *.vcxproj *.sln directory.build.props directory.build.targets *.targets *.props dockerfile dockerfile.* *.dockerfile containerfile containerfile.* docker-compose.yml docker-compose.yaml docker-compose.*.yml compose.yml compose.yaml compose.*.yml vagrantfile procfile skaffold.yaml *.tf *.nix",
			dirs: ".mvn gradle buildsrc"},
		{why: "test or lint configuration that executes", names: "conftest.py pytest.ini tox.ini .coveragerc jest.config.* jest.setup.* vitest.config.* vitest.workspace.* vitest.setup.* karma.conf.* .mocharc .mocharc.* playwright.config.* cypress.config.* wdio.conf.* ava.config.* web-test-runner.config.* testem.* nyc.config.* .nycrc .nycrc.* eslint.config.* .eslintrc .eslintrc.* .prettierrc .prettierrc.* prettier.config.* stylelint.config.* .stylelintrc .stylelintrc.* .golangci.yml .golangci.yaml .golangci.toml .rubocop.yml .rspec phpunit.xml phpunit.xml.dist .phpstan.neon sitecustomize.py usercustomize.py *.pth *.bats test_helper.rb spec_helper.rb renovate.json renovate.json5 .renovaterc dependabot.yml codecov.yml sonar-project.properties testmain.go"},
		{why: "shell script", names: "*.sh *.bash *.zsh *.fish *.ps1 *.psm1 *.bat *.cmd .bashrc .bash_profile .profile .zshrc .zshenv .zprofile .inputrc"},
		{why: "laufwerk project", dirs: "laufwerk"},
	}
}

// classifier is the rules made ready for many paths.
type classifier struct {
	dirs, names map[string]string
	globs       []hostGlob
}

type hostGlob struct{ before, after, why string }

func newClassifier() *classifier {
	c := &classifier{dirs: map[string]string{}, names: map[string]string{}}
	for _, r := range hostRules() {
		for dir := range strings.FieldsSeq(r.dirs) {
			c.dirs[dir] = r.why
		}
		for name := range strings.FieldsSeq(r.names) {
			if before, after, star := strings.Cut(name, "*"); star {
				c.globs = append(c.globs, hostGlob{before, after, r.why})
			} else {
				c.names[name] = r.why
			}
		}
	}
	return c
}

// reasonFor compares names as the most tolerant file system would: folded case, composed characters, without invisible ones and
// without trailing dots and spaces.
func (c *classifier) reasonFor(path string) string {
	elems := strings.Split(foldPath(path), "/")
	for _, e := range elems {
		if why := c.dirs[e]; why != "" {
			return why
		}
	}
	name := elems[len(elems)-1]
	if why := c.names[name]; why != "" {
		return why
	}
	for _, g := range c.globs {
		if len(name) >= len(g.before)+len(g.after) && strings.HasPrefix(name, g.before) && strings.HasSuffix(name, g.after) {
			return g.why
		}
	}
	return ""
}

func foldPath(p string) string {
	if plainASCII(p) {
		p = strings.ToLower(p)
	} else {
		p = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r) {
				return -1
			}
			return r
		}, norm.NFKC.String(p))
		p = strings.ToLower(strings.ToUpper(p)) // twice: some letters meet only in upper case
	}
	elems := strings.Split(p, "/")
	for i, e := range elems {
		elems[i] = strings.TrimRight(e, ". ")
	}
	return strings.Join(elems, "/")
}

func plainASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r >= 0x7f })
}
