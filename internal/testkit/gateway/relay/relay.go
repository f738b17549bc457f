// Package relay is what the gateway for tests and the supervisor in its containers tell each other, through files in a
// directory that both have: a description that the supervisor starts from, a socket of the supervisor for commands, and one
// of the gateway for what wants out.
package relay

// Where things are in a container, and in the directory of the container on the gateway's side.
const (
	Dir         = "/run/openshell"
	Description = "sandbox.json"
	Commands    = "commands.sock"
	Egress      = "egress.sock"
	Supervisor  = "/opt/openshell/bin/openshell-sandbox"
	Authority   = "/etc/openshell-tls/openshell-ca.pem"
	Bundle      = "/etc/openshell-tls/ca-bundle.pem" // Authority after those of the image
)

// Sandbox is how a supervisor runs one.
type Sandbox struct {
	Command   []string // of the main process
	Env       []string // of the main process; an exec has its own
	Root      string   // the working directory of every process, which becomes the user's
	UID, GID  int
	ReadOnly  []string
	ReadWrite []string
	Hard      bool   // a path that is not there is an error
	Proxy     string // host:port at which the supervisor listens
	Authority string // PEM
}

// Request begins an exec; what comes back are Events, the last of which has Done set.
type Request struct {
	Shell string // for bash -lc
	Env   []string
	Stdin []byte
}

// Event is something of an exec.
type Event struct {
	Stderr bool
	Data   []byte
	Done   bool
	Code   int
	Error  string // the command could not be started
}

// Caller is who wants out: the program, those of its ancestors after it. It is the first line, as JSON, of a connection to
// Egress; the rest is the connection to the proxy.
type Caller struct {
	Programs []string
}
