package doctor

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// longWait is how long a question may wait before somebody is told.
const longWait = 24 * time.Hour

// readRuns is what runs, claims and their checks read once.
func (d *doctor) readRuns(ctx context.Context) (*runs.Service, map[string]runs.Run, []claims.Claim, error) {
	s, err := d.service(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	list, err := d.list(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	byID := map[string]runs.Run{}
	for _, r := range list {
		byID[r.ID] = r
	}
	all, err := s.Driver.List(ctx, claims.Filter{})
	return s, byID, all, err
}

func unreadableStore() []Check { return oneCheck(Skip, "the store cannot be read") }

// claims looks for resources that nobody will give up by themselves, and for recorded ones that are gone.
func (d *doctor) claims(ctx context.Context) []Check {
	s, err := d.service(ctx)
	if err != nil {
		return unreadableStore()
	}
	sweep, err := s.Driver.Sweep(ctx, claims.Filter{States: []claims.State{claims.Allocated}})
	if err != nil {
		return unreadableStore()
	}
	s, byID, all, err := d.readRuns(ctx)
	if err != nil {
		return unreadableStore()
	}
	var kept, gone []string
	fix, several := "", false
	for _, c := range all {
		if !c.Outstanding() {
			continue
		}
		r, known := byID[c.Run]
		about := fmt.Sprintf("%s %s of run %s is %s", c.Kind, c.ID, orNone(c.Run), c.State)
		if c.State == claims.Allocated && isDirMissing(s, c) {
			gone = append(gone, about+", and its directory is missing")
			continue
		}
		if c.State == claims.Allocated && sweep.IsAbsent(c) {
			gone = append(gone, fmt.Sprintf("%s, and %s does not list %s", about, c.Intent.Endpoint, c.Intent.Resource))
			continue
		}
		if known && !r.Terminal() && (c.State == claims.Allocated || c.State == claims.Intent) || c.Run == "" && c.State == claims.Allocated && d.Probe {
			continue
		}
		if c.Keep != "" {
			about += ": " + c.Keep
		} else if c.Last != "" {
			about += ": " + c.Last
		}
		kept = append(kept, about)
		several = several || fix != "" && fix != c.CleanupHint()
		fix = c.CleanupHint()
	}
	if several {
		fix = "laufwerk cleanup --all"
	}
	out := listCheck(Warn, "no resource is retained", "retained resources: %d", fix, kept)
	out[0].ID = "claims.retained"
	lost := listCheck(Fail, "every recorded resource exists", "recorded resources that do not exist: %d; the runs that use them cannot continue with them", "laufwerk claims list", gone)
	lost[0].ID = "claims.present"
	return append(out, lost...)
}

func orNone(id string) string {
	if id == "" {
		return "none"
	}
	return id
}

func isDirMissing(s *runs.Service, c claims.Claim) bool {
	if c.Kind == claims.KindWorkspace {
		return !files.Exists(s.Home.WorkspaceDir(c.ID))
	}
	return filepath.IsAbs(c.Intent.Resource) && !files.Exists(c.Intent.Resource)
}

// orphans looks for folders and processes that belong to nothing.
func (d *doctor) orphans(ctx context.Context) []Check {
	s, byID, all, err := d.readRuns(ctx)
	if err != nil {
		return unreadableStore()
	}
	claim := map[string]claims.Claim{}
	for _, c := range all {
		claim[c.ID] = c
	}
	var folders, workspaces, living []string
	names, err := files.Names(s.Home.RunsDir())
	if err != nil {
		return failedCheck(err)
	}
	for _, n := range names {
		if _, known := byID[n]; known {
			continue
		}
		if _, locked, err := lock.Query(s.Home.LockFile("run-" + n)); err == nil && !locked {
			folders = append(folders, filepath.Join(s.Home.RunsDir(), n))
		}
	}
	if names, err = files.Names(s.Home.WorkspacesDir()); err != nil {
		return failedCheck(err)
	}
	for _, n := range names {
		id, _, _ := strings.Cut(strings.TrimPrefix(n, "."), ".")
		if c, ok := claim[id]; !ok || !c.Outstanding() {
			workspaces = append(workspaces, filepath.Join(s.Home.WorkspacesDir(), n))
		}
	}
	marks, err := process.AllMarks(supervise.MarkVariable)
	if err != nil {
		return oneCheck(Skip, "processes cannot be listed: %v", err)
	}
	for _, m := range marks {
		id, operation, _ := strings.Cut(m.Value, "/")
		if c, ok := claim[id]; ok && !c.Outstanding() {
			living = append(living, fmt.Sprintf("process %d: %s of the session %s, which is %s", m.PID, operation, c.ID, c.State))
		}
	}
	out := listCheck(Warn, "every directory of a run has a record", "directories without a recorded run, left by a start that was interrupted: %d", "laufwerk cleanup --all", folders)
	out[0].ID = "orphans.runs"
	ws := listCheck(Warn, "every workspace directory has a claim", "workspace directories without a claim: %d", "ls -la "+failure.Quote(s.Home.WorkspacesDir()), workspaces)
	ws[0].ID = "orphans.workspaces"
	procs := listCheck(Fail, "no process is left of a session that has ended", "processes left of sessions that have ended: %d", "laufwerk claims list --all", living)
	procs[0].ID = "orphans.processes"
	return append(append(out, ws...), procs...)
}

func (d *doctor) writeBacks(ctx context.Context) []Check {
	s, err := d.service(ctx)
	if err != nil {
		return unreadableStore()
	}
	list, err := d.list(ctx)
	if err != nil {
		return unreadableStore()
	}
	var half []string
	fix := ""
	for _, r := range list {
		dir, err := s.HalfApplied(r.ID)
		switch {
		case err != nil:
			half = append(half, fmt.Sprintf("run %s: %v", r.ID, err))
		case dir != "":
			half = append(half, fmt.Sprintf("run %s, into %s", r.ID, r.Root))
		default:
			continue
		}
		if fix == "" {
			fix = "laufwerk writeback continue " + r.ID + "\nlaufwerk writeback abort " + r.ID
		}
	}
	return listCheck(Fail, "no write-back is half-applied", "half-applied write-backs: %d", fix, half)
}

func (d *doctor) waitingRuns(ctx context.Context) []Check {
	list, err := d.list(ctx)
	if err != nil {
		return unreadableStore()
	}
	var long []string
	fix := ""
	for _, r := range list {
		for _, q := range r.Waiting {
			if since := time.UnixMilli(q.Since); r.State == runs.Waiting && d.Now().Sub(since) > longWait {
				long = append(long, fmt.Sprintf("run %s waits since %s: %s", r.ID, since.UTC().Format(time.DateTime), q.Title))
				if fix == "" {
					fix = "laufwerk runs show " + r.ID
				}
			}
		}
	}
	return listCheck(Warn, "no question has waited for more than a day", "questions that have waited for more than a day: %d", fix, long)
}

func (d *doctor) interruptedRuns(ctx context.Context) []Check {
	list, err := d.list(ctx)
	if err != nil {
		return unreadableStore()
	}
	var stopped []string
	fix := ""
	for _, r := range list {
		if r.State == runs.Interrupted {
			stopped = append(stopped, fmt.Sprintf("run %s of %s: %s", r.ID, r.Workflow, r.Reason))
			if fix == "" {
				fix = "laufwerk resume " + r.ID
			}
		}
	}
	return listCheck(Warn, "no run is interrupted", "interrupted runs, which can be resumed: %d", fix, stopped)
}

// scan lists what carries a mark of laufwerk and has no claim here. It may belong to another home, so nothing is done to it.
func (d *doctor) scan(ctx context.Context) []Check {
	claim := map[string]bool{}
	if _, _, all, err := d.readRuns(ctx); err == nil {
		for _, c := range all {
			claim[c.ID] = true
		}
	}
	marks, err := process.AllMarks(supervise.MarkVariable)
	if err != nil {
		return oneCheck(Skip, "processes cannot be listed: %v", err)
	}
	var strange []string
	for _, m := range marks {
		if id, _, _ := strings.Cut(m.Value, "/"); !claim[id] {
			strange = append(strange, fmt.Sprintf("process %d, mark %s", m.PID, m.Value))
		}
	}
	for _, dir := range process.FindCgroups("laufwerk-") {
		strange = append(strange, "control group "+dir)
	}
	return listCheck(Warn, "no process or control group has a laufwerk mark without a claim in this home", "resources that have a laufwerk mark and no claim in this home: %d; they may belong to another LAUFWERK_HOME", "ps -e -o pid,ppid,lstart,args", strange)
}

// scanKind lists what carries a label of laufwerk on the endpoint of a kind of targets, and has no claim here.
func (d *doctor) scanKind(ctx context.Context, kind string) []Check {
	p, _ := d.Provider(kind)
	l := p.Lister()
	if l == nil {
		return nil
	}
	there, err := l.List(ctx, resource.Intent{})
	if err != nil {
		return oneCheck(Skip, "the resources cannot be listed: %v", err)
	}
	owner := ""
	sightings := make([]claims.Identification, len(there))
	if s, err := d.service(ctx); err == nil {
		if known, err := s.Driver.Identify(ctx, there); err == nil { // read after the list
			sightings = known
		}
		if all, err := s.Driver.List(ctx, claims.Filter{}); err == nil && len(all) > 0 {
			owner = all[0].Intent.Owner
		}
	}
	var strange []string
	fix := ""
	for i, f := range there {
		switch s := sightings[i]; {
		case s.Late:
			strange = append(strange, fmt.Sprintf("%s %s appeared after its claim %s was released", f.Resource, f.Name, s.Claim.ID))
			fix = "laufwerk cleanup --all"
		case s.HasClaim():
		default:
			whose := "of another LAUFWERK_HOME, owner " + f.Owner
			if f.Owner != "" && f.Owner == owner {
				whose = "with the label of this home"
			}
			strange = append(strange, fmt.Sprintf("%s %s, %s, claim %s", f.Resource, f.Name, whose, orNone(f.Claim)))
		}
	}
	if fix == "" {
		fix = l.ListCommand()
	}
	return listCheck(Warn, "nothing at the endpoint has a laufwerk label without a claim in this home",
		"resources that have a laufwerk label and no claim in this home, or a released one: %d; nothing is removed because of its label alone", fix, strange)
}
