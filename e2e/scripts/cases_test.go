package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// replay is where a fault that users of such tools reported is played again here, or why it is not.
type replay struct {
	fault string
	tests []string // "script: FOLDER/NAME" or "PACKAGE: TestName"
	not   string   // why it cannot happen by construction, or what it waits for
}

const cannot = "cannot apply: "

// replays are the cases of known faults, by their numbers. A target that a case waits for names its tests here when it comes.
func replays() map[string]replay {
	return map[string]replay{
		"C1":  {"the resource is gone and its record stays; an interrupted clean-up loses track", []string{"script: cleanup/case-lost", "claims: TestCancelledInTheMiddleLosesNothing", "e2e/docker: TestDockerFaults", "e2e/docker: TestDockerContainerIsRemovedByAPerson", "providers/openshell: TestAnOrphanIsIdentified"}, ""},
		"C3":  {"preparing leaves something running", []string{"script: prepare/local", "prepare: TestDockerKilledAnywhereConverges"}, ""},
		"C4":  {"an acknowledged delete is taken for absence", []string{"claims: TestAcknowledgedDeleteIsNotAbsence", "e2e/docker: TestDockerFaults", "dockerengine/owned: TestDeleteFaults", "providers/openshell: TestEveryFaultOfADelete"}, ""},
		"C5":  {"a create without an answer is made twice", []string{"claims: TestUnknownCreate", "providers/local: TestHalfMadeAndHalfEndedSessions", "e2e/docker: TestDockerFaults", "dockerengine/owned: TestUnknownCreatesAreResolved", "providers/openshell: TestEveryFaultOfACreate", "openshell: TestNothingIsSentTwice"}, ""},
		"C7":  {"a stale state is shown", []string{"e2e/local: TestClockJumps", "script: run/case-hangup", "e2e/docker: TestDockerContainerEndsInATurn"}, ""},
		"C9":  {"images are never collected", []string{"prepare: TestImagesPrune"}, ""},
		"C10": {"a signal between create and its answer leaks", []string{"claims: TestUnknownCreate", "claims: TestCancelledBeforeItBegan", "e2e/docker: TestDockerFaults", "e2e/docker: TestDockerSignalsAtRandomTimes", "providers/openshell: TestACreationThatWasNotAnsweredIsFound"}, ""},
		"C11": {"the second interrupt loses what runs", []string{"script: run/bad-agent-sigint", "e2e/docker: TestDockerSignalsAtRandomTimes"}, ""},
		"C13": {"SIGKILL leaves something that nobody finds", []string{"script: run/bad-agent-daemons", "script: run/case-hangup", "e2e/docker: TestDockerTurnOutlivesItsWorker", "e2e/docker: TestDockerSignalsAtRandomTimes"}, ""},
		"C14": {"a look that failed is taken for absence", []string{"claims: TestFailedObservationIsNotAbsence", "e2e/docker: TestDockerFaults", "dockerengine: TestPresence", "providers/openshell: TestEveryFaultOfAnObservation"}, ""},
		"C15": {"a sweep ends what is just being made", []string{"claims: TestSweepReadsClaimsAfterListing", "e2e/docker: TestDockerTurnOutlivesItsWorker"}, ""},
		"C17": {"the terminal goes and something outlives it unnoticed", []string{"script: run/case-hangup", "e2e/docker: TestDockerSignalsAtRandomTimes"}, ""},
		"C19": {"a check comes after the first change", []string{"script: run/case-no-shell", "script: run/bad-target", "providers/docker: TestRefusalsBeforeAnythingIsMade"}, ""},
		"C21": {"a state that no clean-up leads out of", []string{"claims: TestEveryStoredStateReachesReleased", "script: cleanup/case-lost", "e2e/docker: TestDockerFaults", "e2e/docker: TestDockerContainerIsPaused", "providers/openshell: TestWhatMustNotBeUsed"}, ""},
		"C22": {"killed after the create and before it is recorded", []string{"claims: TestKilledAtEveryPoint", "e2e/local: TestKilledAnywhereThenCancelled", "e2e/docker: TestDockerKilledAnywhere", "providers/openshell: TestKilledAtEveryPoint"}, ""},

		"C23": {"the current docker context is ignored", []string{"dockerengine: TestFindInTheOrderOfDockersCLI"}, ""},
		"C25": {"the daemon's socket is a broken link", []string{"dockerengine: TestWhatCannotBeFoundSaysWhy", "e2e/docker: TestDoctorWithoutAnEngine"}, ""},
		"C27": {"the socket of a rootless daemon is elsewhere", []string{"dockerengine: TestFindInTheOrderOfDockersCLI", "e2e/docker: TestContainersOfARootlessEngine"}, ""},
		"C28": {"a remote daemon mounts an empty directory", []string{"dockerengine: TestWhatCannotBeFoundSaysWhy", "e2e/docker: TestDockerAnotherEngineTakesTheSocket", "e2e/docker: TestDockerEngineOfAnotherHost", "providers/docker: TestAnEngineOfAnotherHostRunsNothing", "prepare: TestDockerWhoseEngineHasOtherFiles", "providers/openshell: TestAGatewayWithAnotherEngine"}, ""},
		"C29": {"no answer of the daemon is read as a running one", []string{"dockerengine: TestConnectSaysWhatIsWrong", "openshell: TestNoGateway"}, ""},
		"C31": {"a missing credential helper fails what needs none", []string{"dockerengine: TestFindInTheOrderOfDockersCLI", "dockerengine: TestHelpers"}, ""},
		"C33": {"plain text against TLS fails without a word", []string{"openshell: TestNoGateway", "openshell: TestRefusedRegistrations"}, ""},
		"C35": {"the checks pass though the files behind them hold nothing", []string{"script: doctor/codex", "agent/codex: TestLoginsThatAreRefused", "e2e/docker: TestDoctorOfClaimsInContainers", "e2e/local: TestDoctorOfProcesses", "e2e/local: TestDoctorOfWhatWaitsForAPerson", "providers/openshell: TestTheLoginThatTheGatewayHolds"}, ""},

		"C37": {"one unreadable path ends everything without its name", []string{"script: run/case-files", "workspace: TestUnreadablePathsAreAllNamed", "workspace: TestUnreadablePathsOfAWorkspaceAreNotTakenForDeleted"}, ""},
		"C38": {"files that lead out of the source are written", []string{"script: run/bad-agent-files", "script: run/bad-agent-workspace", "writeback: TestRefused", "writeback: TestBelowALinkOfTheFreeze"}, ""},
		"C39": {"modes are lost", []string{"script: run/case-files", "workspace: TestCopyKeepsModesLinksAndEmptyDirectories"}, ""},
		"C40": {"hard links carry a change elsewhere", []string{"script: run/case-files", "writeback: TestAHardLinkKeepsItsContent"}, ""},
		"C41": {"a user of another id gets cryptic errors", []string{"script: run/case-files", "e2e/docker: TestContainersWorkAsTheUser"}, ""},
		"C43": {"git in the workspace reaches the host's repository", []string{"script: run/case-git-source", "workspace: TestCopyOfALinkedWorktreeLeavesTheRepositoryAlone"}, ""},
		"C45": {"a stale or long-held lock blocks what only looks", []string{"script: run/case-git-source", "e2e/local: TestClockJumps"}, ""},
		"C47": {"a full disk leaves a truncated file", []string{"script: run/bad-full-disk", "store: TestFullDisk", "writeback: TestFullDisk"}, ""},
		"C49": {"memory grows with files", []string{"script: run/case-scale", "workspace: TestMemoryDoesNotGrowWithAFile"}, ""},

		"C51": {"an unknown word prints help and succeeds", []string{"script: help/bad-words", "app: TestUnknownWordsUnderEveryGroup", "app: TestUnknownFlagsOfEveryCommand"}, ""},
		"C53": {"a question where nobody can answer", []string{"script: run/bad-streams"}, ""},
		"C55": {"the failure of a step ends with exit code 0", []string{"script: run/bad-agent-idle", "script: run/case-no-shell", "dockerengine: TestRealBuildThatFails"}, ""},
		"C57": {"a missing shell or program is an opaque error", []string{"script: run/case-no-shell", "script: run/bad-agent-idle", "prepare: TestDockerNamesWhatABaseLacks"}, ""},
		"C59": {"the failure of a sandbox is taken for the agent's", []string{"e2e/docker: TestDockerFaults", "e2e/docker: TestDoctorOfContainers", "providers/openshell: TestWhatIsExamined"}, ""},
		"C61": {"the terminal is asked, and colour is where it is not wanted", []string{"app: TestTerminal", "app: TestErrorsOnATerminalAreSanitised"}, ""},
		"C63": {"a secret is in arguments, files or output", []string{"script: run/case-secrets", "redact: TestSecretsInAStream", "workflow: TestRecordsHoldNoSecret", "openshell: TestCredentialsAreNotRepeated", "provision: TestFaultsOfProvisioning"}, ""},

		"C65": {"a damaged store crashes, or is made anew", []string{"script: runs/bad-store", "store: TestDamagedStoreIsRefusedAndLeftAlone", "store: TestRandomFlips", "store: TestTornMetaPage"}, ""},
		"C67": {"waiting for a lock without an end", []string{"store: TestLockedGateNamesItsHolder", "script: run/case-locks"}, ""},
		"C69": {"a pid in a lock file is believed", []string{"script: run/case-locks", "store: TestForeignWordsInTheLockFile", "supervise: TestAStrangerWithARecordedIDIsNeverTouched"}, ""},
		"C71": {"the clock jumps", []string{"e2e/local: TestClockJumps", "supervise: TestAnotherBootIsAbsence"}, ""},
	}
}

// TestEveryCaseHasItsReplay holds that the tests that the table names are there.
func TestEveryCaseHasItsReplay(t *testing.T) {
	for id, r := range replays() {
		if (len(r.tests) == 0) == (r.not == "") || r.fault == "" {
			t.Errorf("%s: either its tests are named, or why there are none", id)
		}
		if r.not != "" && !strings.HasPrefix(r.not, "waits for ") && !strings.HasPrefix(r.not, cannot) {
			t.Errorf("%s: it neither waits for a target nor is impossible: %s", id, r.not)
		}
		for _, name := range r.tests {
			where, test, ok := strings.Cut(name, ": ")
			switch {
			case !ok:
				t.Errorf("%s: %q names no test", id, name)
			case where == "script":
				if _, err := os.Stat(filepath.Join(scripts, test+".txtar")); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			case !slices.Contains(testsOf(t, where), test):
				t.Errorf("%s: %s is not in %s", id, test, where)
			}
		}
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

func testsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	if !strings.HasPrefix(pkg, "e2e/") {
		pkg = "internal/" + pkg
	}
	found, _ := filepath.Glob(filepath.Join(e2e.RepositoryRoot, pkg, "*_test.go"))
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunction.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}
