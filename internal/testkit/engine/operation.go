package engine

import (
	"net/http"
	"regexp"
	"strings"
)

// Operation names a call of the engine's API: the verb of its documentation, with what it is about where that is not a
// container.
type Operation string

// The operations that have a name of their own; any other is "METHOD /path" with * for names.
const (
	Ping         Operation = "ping"
	Info         Operation = "info"
	Version      Operation = "version"
	Events       Operation = "events"
	Create       Operation = "create"
	Start        Operation = "start"
	Stop         Operation = "stop"
	Kill         Operation = "kill"
	Wait         Operation = "wait"
	Inspect      Operation = "inspect"
	List         Operation = "list"
	Delete       Operation = "remove" // the API says delete; Remove is the function
	Commit       Operation = "commit"
	Logs         Operation = "logs"
	Attach       Operation = "attach"
	PutArchive   Operation = "put-archive"
	GetArchive   Operation = "get-archive"
	StatArchive  Operation = "stat-archive"
	ExecCreate   Operation = "exec-create"
	ExecStart    Operation = "exec-start"
	ExecInspect  Operation = "exec-inspect"
	Build        Operation = "build"
	Pull         Operation = "pull"
	ImageInspect Operation = "image-inspect"
	ImageList    Operation = "image-list"
	ImageRemove  Operation = "image-remove"
	ImageTag     Operation = "image-tag"
	ImageSave    Operation = "image-save"
	ImageLoad    Operation = "image-load"
)

var versionPrefix = regexp.MustCompile(`^/v\d+\.\d+/`) //nolint:gochecknoglobals // a constant

func operations() map[string]Operation {
	return map[string]Operation{
		"GET /_ping": Ping, "HEAD /_ping": Ping, "GET /info": Info, "GET /version": Version, "GET /events": Events,
		"POST /containers/create": Create, "GET /containers/json": List, "POST /commit": Commit,
		"DELETE /containers/*": Delete, "GET /containers/*/json": Inspect, "POST /containers/*/start": Start,
		"POST /containers/*/stop": Stop, "POST /containers/*/kill": Kill, "POST /containers/*/wait": Wait,
		"GET /containers/*/logs": Logs, "POST /containers/*/attach": Attach,
		"PUT /containers/*/archive": PutArchive, "GET /containers/*/archive": GetArchive, "HEAD /containers/*/archive": StatArchive,
		"POST /containers/*/exec": ExecCreate, "POST /exec/*/start": ExecStart, "GET /exec/*/json": ExecInspect,
		"POST /build": Build, "POST /images/create": Pull, "POST /images/load": ImageLoad, "GET /images/json": ImageList,
		"GET /images/*/json": ImageInspect, "POST /images/*/tag": ImageTag, "GET /images/*/get": ImageSave, "DELETE /images/*": ImageRemove,
	}
}

// operation also gives the name that the path holds, "" if it holds none.
func operation(r *http.Request) (op Operation, name string) {
	path := versionPrefix.ReplaceAllString(r.URL.Path, "/")
	known := operations()
	if op, found := known[r.Method+" "+path]; found {
		return op, ""
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) < 2 {
		return Operation(r.Method + " " + path), ""
	}
	verb, names := "", parts[1:]
	if len(parts) > 2 && r.Method != http.MethodDelete { // the name of an image has slashes of its own
		verb, names = "/"+parts[len(parts)-1], parts[1:len(parts)-1]
	}
	name = strings.Join(names, "/")
	key := r.Method + " /" + parts[0] + "/*" + verb
	if op, found := known[key]; found {
		return op, name
	}
	return Operation(key), name
}
