package scaffold

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// Words splits a command as a shell would: at white space, with quotes and backslashes. There is no shell, so what only a
// shell understands is refused rather than handed to the program.
func Words(command string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	var quote rune
	escaped := false
	for _, r := range command {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune(`"\$`+"`", r) {
				word.WriteByte('\\')
			}
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\n", r):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		case strings.ContainsRune("|&;<>()$`*?~#", r):
			return nil, failure.New(failure.Usage, "the agent command is started without a shell: %q means nothing there", string(r)).
				WithHint("quote it, or name the shell: --agent-command \"bash -c '…'\"")
		case r == 0:
			return nil, failure.New(failure.Usage, "the agent command contains a zero byte")
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quote != 0 || escaped {
		return nil, failure.New(failure.Usage, "the agent command ends inside a quotation: %s", command)
	}
	if begun {
		words = append(words, word.String())
	}
	if len(words) == 0 || words[0] == "" {
		return nil, failure.New(failure.Usage, "the agent command names no program")
	}
	return words, nil
}
