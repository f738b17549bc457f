package suggest

import "testing"

func TestClosest(t *testing.T) {
	known := []string{"run", "runs", "resume", "answer", "cleanup", "writeback", "script.memory"}
	for word, want := range map[string]string{
		"rnu": "run", "rusn": "runs", "resmue": "resume", "claenup": "cleanup", "write": "writeback",
		"ANSWER": "answer", "script.memry": "script.memory", "zzz": "", "r": "", "": "",
	} {
		if got := Closest(word, known); got != want {
			t.Errorf("Closest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestSlipIsNoAbbreviation(t *testing.T) {
	known := []string{"HOME", "DOCKER_HOST", "SCRIPT_MEMORY"}
	for word, want := range map[string]string{
		"HOEM": "HOME", "HOMES": "HOME", "home": "HOME", "DOCKERHOST": "DOCKER_HOST", "SCRIPT_MEMROY": "SCRIPT_MEMORY",
		"DOCKER": "", "SCRIPT": "", "HOME_DIRECTORY": "", "HOST": "", "CI": "", "CRASH": "",
	} {
		if got := CorrectTypo(word, known); got != want {
			t.Errorf("Slip(%q) = %q, want %q", word, got, want)
		}
	}
}
