package layers

// layer is a group of packages with one subject. Its ranks stand from the lowest to the highest.
type layer struct {
	name  string
	ranks [][]entry
}

// entry is a package, below internal/ where its path does not say otherwise, and what it is for.
type entry struct{ path, purpose string }

// table is every package of the module, from the ground up. A package imports only what stands in an earlier rank.
var table = []layer{
	{"Ground: facts and rules without the operating system", [][]entry{
		{
			{"/sdk", "the TypeScript half, embedded: sources and declarations of the @laufwerk/* modules"},
			{"/templates", "what `laufwerk init` writes, embedded"},
			{"build", "version and revision of this binary"},
			{"failure", "what can go wrong: kind, exit code, error code, hint"},
			{"lazyregexp", "regular expressions that are compiled once, on first use"},
			{"openshell/wire", "the protocol of an OpenShell gateway, generated from its .proto files"},
			{"protocol", "what the isolate's child and the engine say to each other"},
			{"redact", "makes foreign text harmless to read"},
			{"resource", "the ground contract: intent, outcome, evidence, observation, manager of resources"},
			{"sha256hex", "SHA-256 sums in hexadecimal digits"},
			{"suggest", "the known word that a mistyped one probably meant"},
			{"system/crash", "points at which a test kills this process"},
			{"system/fault", "the point that every call to the operating system passes, where a test makes it fail"},
		}, {
			{"checks", "what doctor and the providers say of one thing that they looked at"},
			{"options", "reads the options of a constructor, and names the path of a wrong one"},
			{"schema", "checks values against the JSON Schemas of workflows"},
		}, {
			{"environment", "variables of a command, literal or from the worker's environment"},
			{"openshell/policy", "network policies of an OpenShell sandbox"},
		}, {
			{"targets", "the definition of a target, and the options that several kinds have in common"},
		},
	}},
	{"System: the only doors to the operating system", [][]entry{
		{
			{"system", "arguments, environment, clock, streams, signals"},
			{"system/files", "our own durable state on disk"},
			{"system/safefs", "directories that an agent may write: nothing is followed"},
		}, {
			{"system/process", "who a process is, and how it is started, signalled and ended"},
			{"system/projectfs", "reads the files of a project that may be hostile"},
		}, {
			{"system/lock", "files locked between processes, with who holds one"},
		},
	}},
	{"Clients: a supervisor, a sandbox, an engine, a gateway; what an agent program is", [][]entry{
		{
			{"agent", "the interface of an agent program: recipe, login, turn, events, verdict"},
			{"dockerengine", "finds the Docker engine and speaks to it"},
			{"openshell", "finds OpenShell gateways and speaks to them"},
			{"supervise", "the process that owns a command or turn, and its client"},
		}, {
			{"dockerengine/owned", "containers that stand for a claim, told from a stranger's"},
			{"guest", "our binary inside a sandbox, and its host half"},
			{"guest/carried", "the build of our binary for a container's platform"},
		}, {
			{"imagecache", "keeps and finds prepared images: recipes, receipts, names"},
		},
	}},
	{"Adapters: agent programs and providers", [][]entry{
		{
			{"agent/codex", "the Codex CLI"},
			{"agent/command", "any program as an agent"},
			{"providers", "the interface of a provider"},
		}, {
			{"providers/sessiondir", "a session's private directory, from the host's side"},
		}, {
			{"providers/guestclient", "runs commands in a sandbox through the guest"},
		}, {
			{"providers/docker", "sessions in containers of a Docker engine"},
			{"providers/local", "sessions on this host"},
			{"providers/openshell", "sessions in sandboxes of an OpenShell gateway"},
		},
	}},
	{"Records: what outlives a process", [][]entry{
		{
			{"journal", "a run's log, large values and inbox"},
			{"store", "the home and its database: gate, formats, backup"},
			{"workspace", "isolated copies, their manifests, freezes and diffs"},
		}, {
			{"claims", "the state machine of allocated resources and its one driver"},
			{"writeback", "brings the frozen bytes to the source"},
		},
	}},
	{"Engine: a run's operations", [][]entry{
		{
			{"script", "evaluates the project's TypeScript in a child process"},
			{"session", "open, ask, exec, close, fence: where agent, provider, workspace and claim meet"},
		}, {
			{"project", "finds and loads a project, its targets and workflows"},
			{"workflow", "the durable engine: operations and replay"},
		},
	}},
	{"Use cases", [][]entry{
		{
			{"prepare", "prepares what targets need: images, and agent programs on this host"},
			{"provision", "gives an OpenShell gateway what its sandboxes need"},
			{"runs", "the life of runs: start, resume, answer, cancel, list, show, prune"},
			{"scaffold", "makes the laufwerk directory of a project"},
		}, {
			{"cleanup", "gives up what runs allocated"},
			{"doctor", "looks whether everything that runs need is there"},
		},
	}},
	{"Commands", [][]entry{
		{
			{"cli/render", "the only way to the reader: data, talk, JSON, colour"},
			{"cli/settings", "resolves what users may set"},
		}, {
			{"cli", "every command in a file of its own"},
		}, {
			{"app", "the composition root: lists of providers and agent programs"},
		}, {
			{"/cmd/laufwerk", "main"},
		},
	}},
	{"Tests and tools", [][]entry{
		{
			{"/bench", "the numbers to hold, beside their yardsticks"},
			{"/release", "packs what each binary of a release carries"},
			{"compat", "holds the names that outlive a process"},
			{"vocabulary", "holds the names of the code to the field's words"},
			{"layers", "this table, and the test that holds it"},
			{"testkit", "waiting, model servers, packages: for tests only"},
			{"testkit/contract", "the cases that hold for every provider"},
			{"testkit/gateway/relay", "what the test gateway and its supervisor tell each other"},
		}, {
			{"testkit/engine", "a Docker engine for tests, with faults between it and its client"},
			{"testkit/gateway/supervisor", "the first process in containers of the test gateway"},
		}, {
			{"testkit/gateway", "an OpenShell gateway for tests"},
		}, {
			{"testkit/gateway/serve", "the test gateway as a program"},
			{"/e2e", "the harness of the end-to-end tests"},
		}, {
			{"/e2e/codex", "end-to-end: the real Codex"},
			{"/e2e/docker", "end-to-end: Docker targets"},
			{"/e2e/docs", "end-to-end: documents say what is true"},
			{"/e2e/local", "end-to-end: local targets"},
			{"/e2e/openshell", "end-to-end: OpenShell targets"},
			{"/e2e/upgrade", "end-to-end: what an older laufwerk has left"},
			{"/e2e/scripts", "end-to-end: testdata/script"},
		},
	}},
}

// rule keeps a package, and what is below it, to some importers where its rank would allow more. Tests are free.
type rule struct {
	imported  string
	importers []string
	why       string
}

var rules = []rule{
	{"internal/testkit", []string{"internal/testkit", "e2e"}, "testkit is for tests"},
	{"internal/providers/", []string{"internal/app", "bench", "internal/providers"}, "the composition root alone knows the concrete providers"},
	{"internal/agent/", []string{"internal/app", "bench", "e2e", "internal/testkit"}, "the composition root alone knows the concrete agent programs"},
	{"google.golang.org/grpc", []string{"internal/openshell", "internal/testkit"}, "internal/openshell speaks to gateways, and knows what each answer proves"},
	{"github.com/charmbracelet/bubbletea", nil, "its package init asks the terminal for its colours, in every process"},
	{"github.com/charmbracelet/huh", nil, "it brings bubbletea, whose package init asks the terminal for its colours"},
}
